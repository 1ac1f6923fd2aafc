//! One user opens all that it can, and others go on.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::thread;
use std::time::Instant;

use thrufs_tests::caller::{ALICE, BOB};
use thrufs_tests::lower::{Ground, Lower};
use thrufs_tests::server::{END_TIMEOUT, Server};
use thrufs_tests::transport::over_each;

/// Descriptors of the server: 96 for inodes, 80 for each user.
const FILES_MAX: u32 = 256;
const SHARE: usize = 80;

/// Opens until that is refused.
fn open_all(open: impl Fn() -> io::Result<File>) -> (Vec<File>, Option<i32>) {
    let mut files = Vec::new();
    for _ in 0..2 * FILES_MAX {
        match open() {
            Ok(file) => files.push(file),
            Err(error) => return (files, error.raw_os_error()),
        }
    }
    (files, None)
}

/// Holds a user's whole share, once what was open before is released, which happens in the background.
fn hold_share(what: &str, open: impl Fn() -> io::Result<File> + Sync) -> Vec<File> {
    let deadline = Instant::now() + END_TIMEOUT;
    loop {
        let (held, error) = ALICE.run(|| open_all(&open));
        assert_eq!(error, Some(libc::ENFILE), "{what}");
        if held.len() == SHARE {
            return held;
        }
        assert!(held.len() < SHARE, "{what}: {} files", held.len());
        assert!(Instant::now() < deadline, "{what}: no room again");
        thread::yield_now();
    }
}

/// What somebody else does meanwhile.
fn work(mnt: &Path) {
    BOB.run(|| {
        assert_eq!(fs::read_to_string(mnt.join("file")).unwrap(), "content");
        assert_eq!(fs::read_dir(mnt.join("dir")).unwrap().count(), 1);
        let _dirs: Vec<_> = (0..SHARE / 2)
            .map(|_| File::open(mnt.join("dir")).unwrap())
            .collect();
        fs::write(mnt.join("new"), "by bob").unwrap();
        fs::remove_file(mnt.join("new")).unwrap();
    });
}

#[test]
fn who_holds_its_share_keeps_nobody_else_from_opening() {
    over_each("shares::who_holds_its_share", |transport| {
        let ground = Ground::prepare(Lower::Ext4).unwrap();
        let source = ground.source();
        fs::create_dir(source.join("dir")).unwrap();
        fs::write(source.join("dir/inner"), "").unwrap();
        fs::write(source.join("file"), "content").unwrap();
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(source, everybody).unwrap();
        let options = transport.with("nopassthrough,locks=shared");
        let server = Server::start(&ground, &options, Some(FILES_MAX));
        let mnt = ground.mnt();
        type Opening = (&'static str, fn(&Path) -> io::Result<File>);
        let openings: [Opening; 3] = [
            ("directory", |mnt| File::open(mnt.join("dir"))),
            ("file", |mnt| File::open(mnt.join("file"))),
            ("new file", |mnt| {
                let path = mnt.join("made");
                let made = OpenOptions::new().write(true).create_new(true).open(&path);
                match made {
                    Ok(_) => fs::remove_file(path)?,
                    // Nothing was made.
                    Err(_) => assert!(!path.exists()),
                }
                made
            }),
        ];
        for (what, open) in openings.into_iter().chain([openings[0]]) {
            let _held = hold_share(what, || open(mnt));
            work(mnt);
            for (what, open) in openings {
                let refused = ALICE.run(|| open(mnt)).err();
                let errno = refused.and_then(|error| error.raw_os_error());
                assert_eq!(errno, Some(libc::ENFILE), "{what}");
            }
        }
        server.stop();
    });
}

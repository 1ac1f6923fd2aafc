//! One user opens all that it can, and others continue.

use rustix::io::Errno;
use thrufs_testing::user::User;
use thrufs_tests::prelude::*;
use thrufs_tests::server::END_TIMEOUT;

/// Descriptors of the server: 96 for inodes, 80 for each user, and 120 for all users together.
const FILES_MAX: u32 = 256;
const SHARE: usize = 80;

/// Opens until it is refused.
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

/// Holds a user's whole share, once earlier files are released, which is asynchronous.
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

/// A tree in which all users may work.
fn open_ground() -> Ground {
    let ground = Ground::prepare(Lower::Ext4).unwrap();
    let source = ground.source();
    fs::create_dir(source.join("dir")).unwrap();
    fs::write(source.join("dir/inner"), "").unwrap();
    fs::write(source.join("file"), "content").unwrap();
    let all = PermissionsExt::from_mode(0o777);
    fs::set_permissions(source, all).unwrap();
    ground
}

/// Another user's work meanwhile.
fn work(mnt: &Path) {
    BOB.run(|| {
        assert_eq!(fs::read_to_string(mnt.join("file")).unwrap(), "content");
        assert_eq!(fs::read_dir(mnt.join("dir")).unwrap().count(), 1);
        let _dirs: Vec<_> = (0..SHARE / 4)
            .map(|_| File::open(mnt.join("dir")).unwrap())
            .collect();
        fs::write(mnt.join("new"), "by bob").unwrap();
        fs::remove_file(mnt.join("new")).unwrap();
    });
}

#[test]
fn a_user_that_holds_its_share_of_open_files_does_not_block_others() {
    over_each(|transport| {
        let ground = open_ground();
        let options = transport.with("nopassthrough,locks=shared,follow=no");
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

/// Requests that wait for a lock may wait for ever. One user has half of the 128 places.
#[test]
fn a_user_that_waits_for_locks_does_not_block_others() {
    const WAITERS: usize = 70;
    const PLACES: usize = 128 / 2;
    over_each(|transport| {
        let ground = Ground::prepare(Lower::Default).unwrap();
        fs::write(ground.source().join("file"), "").unwrap();
        let server = Server::start(&ground, &transport.with("locks=shared"), None);
        let file = ground.mnt().join("file");
        let lock = || {
            let file = File::open(&file).unwrap();
            let locked = rustix::fs::flock(&file, FlockOperation::LockExclusive);
            locked.map(|()| file)
        };
        let held = lock().unwrap();
        thread::scope(|scope| {
            let wait = |user: User| scope.spawn(move || user.run(lock).map(drop));
            let alices: Vec<_> = (0..WAITERS).map(|_| wait(ALICE)).collect();
            let refused = || alices.iter().filter(|alice| alice.is_finished()).count();
            wait_until("refusals", || refused() >= WAITERS - PLACES);
            let bob = wait(BOB);
            thread::sleep(Duration::from_millis(100));
            assert!(!bob.is_finished());
            drop(held);
            assert_eq!(bob.join().unwrap(), Ok(()));
            let outcomes: Vec<_> = alices
                .into_iter()
                .map(|alice| alice.join().unwrap())
                .collect();
            let refused = outcomes.iter().filter(|it| **it == Err(Errno::NOLCK));
            assert_eq!(refused.count(), WAITERS - PLACES, "{outcomes:?}");
        });
        server.stop();
    });
}

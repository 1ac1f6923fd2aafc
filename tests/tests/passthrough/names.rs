//! Names that go, come and change under passthrough.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use thrufs_tests::lower::Lower;
use thrufs_tests::transport::over_each;

use crate::ground::{LOWERS, on, pattern};

const WITH_NAMES_GONE: [&str; 4] = [
    "",
    "locks=shared",
    "nopassthrough",
    "nopassthrough,cache=never",
];

/// Every data path; with passthrough on all file systems.
fn over_all(body: impl Fn(&thrufs_tests::mounted::Mounted)) {
    over_each(|transport| {
        for options in WITH_NAMES_GONE {
            let lowers = if options.is_empty() {
                &LOWERS[..]
            } else {
                &[Lower::Ext4]
            };
            on(lowers, transport, options, &body);
        }
    });
}

fn by_descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn read_write(path: &std::path::Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).unwrap()
}

#[test]
fn a_file_without_a_name_lives_on_and_opens_again() {
    over_all(|mounted| {
        let path = mounted.mnt().join("file");
        let mut file = read_write(&path);
        file.write_all(b"content").unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        for round in 0..20 {
            let again = read_write(&by_descriptor(&file));
            again.write_all_at(b"C", 0).unwrap();
            let reader = File::open(by_descriptor(&file)).unwrap();
            let mut found = [0; 7];
            reader.read_exact_at(&mut found, 0).unwrap();
            assert_eq!(&found, b"Content", "round {round}");
            // All but the first, and all but the last.
            if round % 2 == 0 {
                file = again;
            }
        }
        file.set_len(100_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 100_000);
        file.sync_all().unwrap();
        // As a shell does with a here-document.
        let mut child = Command::new("cat")
            .arg("/dev/stdin")
            .stdin(Stdio::from(File::open(by_descriptor(&file)).unwrap()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        drop(file);
        let mut text = Vec::new();
        child.stdout.take().unwrap().read_to_end(&mut text).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!((&text[..7], text.len()), (&b"Content"[..], 100_000));
    });
}

#[test]
fn a_duplicate_writes_on_after_a_close() {
    over_all(|mounted| {
        for (name, unlinked, mode) in [
            ("kept", false, 0o644),
            ("gone", true, 0o644),
            ("closed", false, 0),
            ("both", true, 0),
        ] {
            let path = mounted.mnt().join(name);
            let file = read_write(&path);
            file.write_all_at(b"first", 0).unwrap();
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).unwrap();
            if unlinked {
                fs::remove_file(&path).unwrap();
            }
            for round in 0..5_u8 {
                drop(file.try_clone().unwrap());
                file.write_all_at(&[b'0' + round], 5 + u64::from(round))
                    .unwrap();
            }
            let mut found = [0; 10];
            file.read_exact_at(&mut found, 0).unwrap();
            assert_eq!(&found, b"first01234", "{name}");
            assert_eq!(file.metadata().unwrap().len(), 10);
        }
    });
}

#[test]
fn a_nameless_file_gets_a_name() {
    over_each(|transport| {
        for options in ["", "nopassthrough"] {
            on(
                &[Lower::Tmpfs, Lower::Ext4],
                transport,
                options,
                &|mounted| {
                    let mode = Mode::from_raw_mode(0o644);
                    let flags = OFlags::TMPFILE | OFlags::RDWR;
                    let file = rustix::fs::open(mounted.mnt(), flags, mode).unwrap();
                    let file = File::from(file);
                    file.write_all_at(b"content", 0).unwrap();
                    let again = read_write(&by_descriptor(&file));
                    again.write_all_at(b"C", 0).unwrap();
                    let path = mounted.mnt().join("named");
                    let follow = AtFlags::SYMLINK_FOLLOW;
                    rustix::fs::linkat(CWD, by_descriptor(&file), CWD, &path, follow).unwrap();
                    assert_eq!(fs::read(&path).unwrap(), b"Content");
                    let by_name = read_write(&path);
                    by_name.write_all_at(b"more", 7).unwrap();
                    drop((file, again, by_name));
                    assert_eq!(
                        fs::read(mounted.source().join("named")).unwrap(),
                        b"Contentmore"
                    );
                },
            );
        }
    });
}

#[test]
fn a_file_that_is_replaced_lives_on() {
    over_all(|mounted| {
        let path = mounted.mnt().join("file");
        let mut old: Vec<File> = Vec::new();
        for round in 0..20_u8 {
            let new = mounted.mnt().join("new");
            let file = read_write(&new);
            file.write_all_at(&[round; 100], 0).unwrap();
            fs::rename(&new, &path).unwrap();
            assert_eq!(fs::read(&path).unwrap(), [round; 100]);
            old.push(file);
        }
        for (round, file) in old.iter().enumerate() {
            let mut found = [0; 100];
            read_write(&by_descriptor(file))
                .read_exact_at(&mut found, 0)
                .unwrap();
            assert_eq!(found, [round as u8; 100]);
            file.write_all_at(b"still", 95).unwrap();
        }
        drop(old);
        assert_eq!(&fs::read(&path).unwrap()[95..], b"still");
    });
}

#[test]
fn hard_links_share_a_data_path() {
    over_all(|mounted| {
        let (one, other) = (mounted.mnt().join("one"), mounted.mnt().join("other"));
        let file = read_write(&one);
        fs::hard_link(&one, &other).unwrap();
        let linked = read_write(&other);
        file.write_all_at(&pattern(5_000), 0).unwrap();
        assert_eq!(linked.metadata().unwrap().len(), 5_000);
        fs::remove_file(&one).unwrap();
        let again = read_write(&other);
        again.write_all_at(b"begin", 0).unwrap();
        let mut found = [0; 5];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"begin");
        drop((file, linked));
        read_write(&other).write_all_at(b"BEGIN", 0).unwrap();
        assert_eq!(
            &fs::read(mounted.source().join("other")).unwrap()[..5],
            b"BEGIN"
        );
    });
}

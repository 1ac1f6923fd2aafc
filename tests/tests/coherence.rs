//! Changes beneath a mount are seen through it as soon as the cache mode promises: at once with
//! `cache=never`, within a second by default, and for data at the next open. Over each transport, with
//! passthrough and without.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::XattrFlags;
use thrufs_testing::fence::mapping::{Mapping, Sharing};
use thrufs_tests::lower::Lower;
use thrufs_tests::mounted::Mounted;
use thrufs_tests::transport::{Transport, over_each};

/// The default timeout of a second, and a little for the clock ticks of the kernel.
const TIMEOUT: Duration = Duration::from_millis(1100);

/// A change made beneath.
struct Change {
    name: &'static str,
    /// Makes the old state, beneath.
    prepare: fn(&Path),
    /// Caches the old state through the mount.
    warm: fn(&Path),
    /// Makes the change beneath.
    change: fn(&Path),
    /// Checks the new state through the mount.
    check: fn(&Path),
}

/// More than a page, so that old and new data can be mixed up.
fn data(fill: u8) -> Vec<u8> {
    vec![fill; 10_000]
}

fn nothing(_dir: &Path) {}

const CHANGES: [Change; 11] = [
    Change {
        name: "content of the same size",
        prepare: |dir| fs::write(dir.join("file"), data(b'o')).unwrap(),
        warm: |dir| assert_eq!(fs::read(dir.join("file")).unwrap(), data(b'o')),
        change: |dir| {
            let file = OpenOptions::new()
                .write(true)
                .open(dir.join("file"))
                .unwrap();
            file.write_all_at(&data(b'n'), 0).unwrap();
        },
        check: |dir| {
            assert!(fs::read(dir.join("file")).unwrap() == data(b'n'));
        },
    },
    Change {
        name: "append",
        prepare: |dir| fs::write(dir.join("file"), data(b'o')).unwrap(),
        warm: |dir| assert_eq!(fs::read(dir.join("file")).unwrap(), data(b'o')),
        change: |dir| {
            let mut file = OpenOptions::new()
                .append(true)
                .open(dir.join("file"))
                .unwrap();
            file.write_all(b"more").unwrap();
        },
        check: |dir| {
            assert_eq!(fs::metadata(dir.join("file")).unwrap().len(), 10_004);
            let mut expected = data(b'o');
            expected.extend(b"more");
            assert!(fs::read(dir.join("file")).unwrap() == expected);
        },
    },
    Change {
        name: "shrink",
        prepare: |dir| fs::write(dir.join("file"), data(b'o')).unwrap(),
        warm: |dir| assert_eq!(fs::read(dir.join("file")).unwrap(), data(b'o')),
        change: |dir| {
            OpenOptions::new()
                .write(true)
                .open(dir.join("file"))
                .unwrap()
                .set_len(10)
                .unwrap();
        },
        check: |dir| {
            assert_eq!(fs::metadata(dir.join("file")).unwrap().len(), 10);
            assert_eq!(fs::read(dir.join("file")).unwrap(), b"oooooooooo");
        },
    },
    Change {
        name: "rename",
        prepare: |dir| fs::write(dir.join("old"), b"x").unwrap(),
        warm: |dir| {
            assert_eq!(fs::read(dir.join("old")).unwrap(), b"x");
            assert!(!dir.join("new").exists());
        },
        change: |dir| fs::rename(dir.join("old"), dir.join("new")).unwrap(),
        check: |dir| {
            assert_missing(&dir.join("old"));
            assert_eq!(fs::read(dir.join("new")).unwrap(), b"x");
        },
    },
    Change {
        name: "delete",
        prepare: |dir| fs::write(dir.join("file"), b"x").unwrap(),
        warm: |dir| assert_eq!(fs::read(dir.join("file")).unwrap(), b"x"),
        change: |dir| fs::remove_file(dir.join("file")).unwrap(),
        check: |dir| assert_missing(&dir.join("file")),
    },
    Change {
        name: "create after the name was seen missing",
        prepare: nothing,
        warm: |dir| assert_missing(&dir.join("file")),
        change: |dir| fs::write(dir.join("file"), b"x").unwrap(),
        check: |dir| assert_eq!(fs::read(dir.join("file")).unwrap(), b"x"),
    },
    Change {
        name: "chmod",
        prepare: |dir| fs::write(dir.join("file"), b"x").unwrap(),
        warm: |dir| {
            assert_eq!(
                fs::metadata(dir.join("file")).unwrap().mode() & 0o7777,
                0o644
            );
        },
        change: |dir| {
            fs::set_permissions(dir.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
        },
        check: |dir| {
            assert_eq!(
                fs::metadata(dir.join("file")).unwrap().mode() & 0o7777,
                0o600
            );
        },
    },
    Change {
        name: "replaced file",
        prepare: |dir| fs::write(dir.join("file"), data(b'o')).unwrap(),
        warm: |dir| assert_eq!(fs::read(dir.join("file")).unwrap(), data(b'o')),
        change: |dir| {
            fs::write(dir.join("next"), data(b'n')).unwrap();
            fs::rename(dir.join("next"), dir.join("file")).unwrap();
        },
        check: |dir| {
            assert!(fs::read(dir.join("file")).unwrap() == data(b'n'));
        },
    },
    Change {
        name: "file replaced by a directory",
        prepare: |dir| fs::write(dir.join("name"), b"x").unwrap(),
        warm: |dir| assert!(fs::metadata(dir.join("name")).unwrap().is_file()),
        change: |dir| {
            fs::remove_file(dir.join("name")).unwrap();
            fs::create_dir(dir.join("name")).unwrap();
            fs::write(dir.join("name/inside"), b"y").unwrap();
        },
        check: |dir| assert_eq!(fs::read(dir.join("name/inside")).unwrap(), b"y"),
    },
    Change {
        name: "listing",
        prepare: |dir| {
            fs::write(dir.join("stays"), b"x").unwrap();
            fs::write(dir.join("goes"), b"x").unwrap();
        },
        warm: |dir| assert_eq!(names(dir), ["goes", "stays"]),
        change: |dir| {
            fs::remove_file(dir.join("goes")).unwrap();
            fs::write(dir.join("comes"), b"x").unwrap();
        },
        check: |dir| assert_eq!(names(dir), ["comes", "stays"]),
    },
    Change {
        name: "extended attribute",
        prepare: |dir| {
            fs::write(dir.join("file"), b"x").unwrap();
            set_attribute(&dir.join("file"), b"old");
        },
        warm: |dir| assert_eq!(attribute(&dir.join("file")), b"old"),
        change: |dir| set_attribute(&dir.join("file"), b"newer"),
        check: |dir| assert_eq!(attribute(&dir.join("file")), b"newer"),
    },
];

fn set_attribute(path: &Path, value: &[u8]) {
    rustix::fs::setxattr(path, "user.state", value, XattrFlags::empty()).unwrap();
}

fn attribute(path: &Path) -> Vec<u8> {
    let mut value = vec![0; 100];
    let len = rustix::fs::getxattr(path, "user.state", &mut value[..]).unwrap();
    value.truncate(len);
    value
}

#[track_caller]
fn assert_missing(path: &Path) {
    let error = fs::symlink_metadata(path).expect_err("the name should be gone");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// All changes, each in a directory of its own, with one wait for all.
fn see_all_changes(options: &str, delay: Duration) {
    let mut mounted = Mounted::start(options);
    let dir_of = |at: usize| format!("change-{at}");
    for (at, change) in CHANGES.iter().enumerate() {
        let beneath = mounted.source().join(dir_of(at));
        fs::create_dir(&beneath).unwrap();
        (change.prepare)(&beneath);
    }
    for (at, change) in CHANGES.iter().enumerate() {
        eprintln!("options \"{options}\": {}", change.name);
        (change.warm)(&mounted.mnt().join(dir_of(at)));
        (change.change)(&mounted.source().join(dir_of(at)));
        if delay.is_zero() {
            (change.check)(&mounted.mnt().join(dir_of(at)));
        }
    }
    if !delay.is_zero() {
        thread::sleep(delay);
        for (at, change) in CHANGES.iter().enumerate() {
            eprintln!("options \"{options}\", later: {}", change.name);
            (change.check)(&mounted.mnt().join(dir_of(at)));
        }
    }
    mounted.stop().unwrap();
}

/// With the first, the server has no part in data.
const WAYS: [&str; 2] = ["passthrough", "nopassthrough"];

#[test]
fn never_sees_changes_at_once() {
    over_each(|transport| {
        for way in WAYS {
            let options = format!("cache=never,{way}");
            see_all_changes(&transport.with(&options), Duration::ZERO);
        }
    });
}

#[test]
fn auto_sees_changes_within_its_timeout() {
    over_each(|transport| {
        for way in WAYS {
            see_all_changes(&transport.with(way), TIMEOUT);
        }
    });
}

#[test]
fn auto_with_timeouts_of_zero_sees_changes_at_once() {
    over_each(|transport| {
        let options = "entry_timeout=0,attr_timeout=0,negative_timeout=0,nopassthrough";
        see_all_changes(&transport.with(options), Duration::ZERO);
    });
}

/// A reader has the file open, and so its pages cached, during a change beneath.
fn reopen_after_a_change(options: &str) {
    let mut mounted = Mounted::start(options);
    let through = mounted.mnt().join("file");
    fs::write(mounted.source().join("file"), data(b'o')).unwrap();
    let mut early = File::open(&through).unwrap();
    let mut seen = Vec::new();
    early.read_to_end(&mut seen).unwrap();
    assert_eq!(seen, data(b'o'));
    for round in 0..5 {
        let fill = b'0' + round;
        // Old kernels stamp files with the clock tick; two changes within one look the same.
        thread::sleep(Duration::from_millis(20));
        fs::write(mounted.source().join("file"), data(fill)).unwrap();
        let seen = fs::read(&through).unwrap();
        assert!(
            seen == data(fill),
            "options \"{options}\", round {round}: old data after an open"
        );
        let mut same = vec![0; 10_000];
        early.read_exact_at(&mut same, 0).unwrap();
        assert!(
            same == data(fill),
            "options \"{options}\", round {round}: an older descriptor"
        );
    }
    // An open file would keep the mount busy.
    drop(early);
    mounted.stop().unwrap();
}

#[test]
fn never_reads_new_data_after_an_open() {
    over_each(|transport| {
        let options = transport.with("cache=never,nopassthrough");
        reopen_after_a_change(&options);
    });
}

#[test]
fn auto_reads_new_data_after_an_open_at_once() {
    over_each(|transport| {
        for way in WAYS {
            reopen_after_a_change(&transport.with(way));
        }
    });
}

/// Opens and reads without asking for attributes: changed ones would make the kernel drop old data.
fn read_anew(path: &Path) -> Vec<u8> {
    read_by(OpenOptions::new().read(true), path)
}

fn read_by(options: &OpenOptions, path: &Path) -> Vec<u8> {
    let mut file = options.open(path).unwrap();
    let (mut content, mut buffer) = (Vec::new(), vec![0; 1 << 17]);
    loop {
        match file.read(&mut buffer).unwrap() {
            0 => return content,
            count => content.extend_from_slice(&buffer[..count]),
        }
    }
}

/// Although the size that the kernel has is valid for a second.
#[test]
fn auto_reads_what_was_appended_before_an_open() {
    read_what_is_appended(OpenOptions::new().read(true));
}

/// An open for writing makes the kernel ask for the size again, as an open for reading does.
#[test]
fn auto_reads_what_was_appended_before_an_open_for_writing() {
    read_what_is_appended(OpenOptions::new().read(true).write(true));
}

/// Runs over each transport and data path on a fresh mount.
fn on_each_path(lower: Lower, test: impl Fn(&Mounted, &str)) {
    over_each(|transport| {
        for way in WAYS {
            let mut mounted = Mounted::start_on(lower, &transport.with(way)).unwrap();
            test(&mounted, &format!("{transport} {way}"));
            mounted.stop().unwrap();
        }
    });
}

fn read_what_is_appended(options: &OpenOptions) {
    on_each_path(Lower::Default, |mounted, name| {
        let beneath = mounted.source().join("file");
        let mut expected = data(b'o');
        fs::write(&beneath, &expected).unwrap();
        for round in 0..20 {
            let seen = read_by(options, &mounted.mnt().join("file"));
            assert_eq!(seen.len(), expected.len(), "{name}, {round}");
            assert!(seen == expected);
            let mut file = OpenOptions::new().append(true).open(&beneath).unwrap();
            file.write_all(&data(b'n')).unwrap();
            expected.extend(data(b'n'));
        }
    });
}

/// A file system sets the time of a write before it copies: a reader meanwhile sees the last version of the
/// file with old data. Two guards detect that, the age of a version and the lease.
#[test]
fn auto_reads_what_was_written_before_an_open() {
    on_each_path(Lower::Default, rewrite_while_others_read);
}

fn rewrite_while_others_read(mounted: &Mounted, name: &str) {
    const BYTES: usize = 8 << 20;
    const ROUNDS: usize = 50;
    let (beneath, through) = (mounted.source().join("file"), mounted.mnt().join("file"));
    // What is copied last, and without asking for attributes.
    let read_end = || {
        let mut end = [0; 100];
        let file = File::open(&through).unwrap();
        file.read_exact_at(&mut end, BYTES as u64 - 100).unwrap();
        end[99]
    };
    fs::write(&beneath, vec![0; BYTES]).unwrap();
    for round in 1..=ROUNDS {
        let content = vec![round as u8; BYTES];
        let file = OpenOptions::new().write(true).open(&beneath).unwrap();
        let is_written = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_written.load(Ordering::Relaxed) {
                    read_end();
                }
            });
            file.write_all_at(&content, 0).unwrap();
            is_written.store(true, Ordering::Relaxed);
        });
        drop(file);
        assert_eq!(read_end(), round as u8, "{name}: old data after an open");
    }
}

/// The writer has closed, and writes again within a tick of the clock: the file looks the same, and only
/// the age of what was read shows that it may differ.
#[test]
fn auto_reads_what_was_written_within_a_tick() {
    on_each_path(Lower::Ramfs, |mounted, name| {
        let (beneath, through) = (mounted.source().join("file"), mounted.mnt().join("file"));
        for round in 0..200 {
            fs::write(&beneath, [round]).unwrap();
            assert_eq!(read_anew(&through), [round], "{name}");
        }
    });
}

/// Stores through a map leave the times as they are, once they are set. So the age of a version does not
/// show that it is the last; only the lease does, which is refused.
#[test]
fn auto_reads_what_was_stored_before_an_open() {
    on_each_path(Lower::Default, |mounted, name| {
        let (beneath, through) = (mounted.source().join("file"), mounted.mnt().join("file"));
        fs::write(&beneath, data(b'o')).unwrap();
        let read = || read_anew(&through);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).open(&beneath).unwrap();
        let mut map = Mapping::new(&file, 10_000, Sharing::Shared).unwrap();
        drop(file);
        map.store(0, b"s");
        // Longer than the age at which a version counts.
        thread::sleep(Duration::from_millis(2_500));
        assert_eq!(read()[..2], *b"so");
        assert_eq!(read()[..2], *b"so");
        map.store(0, b"n");
        drop(map);
        assert_eq!(read()[..2], *b"no", "{name}: old stores");
    });
}

/// Links beneath: the count is an attribute of the other name too.
#[test]
fn auto_sees_a_link_made_beneath() {
    over_each(see_a_link_made_beneath);
}

fn see_a_link_made_beneath(transport: Transport) {
    let mut mounted = Mounted::start(&transport.to_string());
    let (source, through) = (mounted.source().to_owned(), mounted.mnt().to_owned());
    fs::write(source.join("one"), b"x").unwrap();
    assert_eq!(fs::metadata(through.join("one")).unwrap().nlink(), 1);
    fs::hard_link(source.join("one"), source.join("two")).unwrap();
    thread::sleep(TIMEOUT);
    let [one, two] = ["one", "two"].map(|name| fs::metadata(through.join(name)).unwrap());
    assert_eq!((one.nlink(), two.nlink()), (2, 2));
    assert_eq!(one.ino(), two.ino());
    mounted.stop().unwrap();
}

/// Without waiting for a notification or for the timeout of attributes.
#[test]
fn a_lock_shows_what_was_written_beneath_before() {
    use rustix::fs::{FlockOperation, fcntl_lock, flock};
    for path in ["passthrough", "nopassthrough"] {
        over_each(|transport| {
            let options = transport.with(&format!("{path},follow=no,attr_timeout=3600"));
            let mut mounted = Mounted::start_on(Lower::Default, &options).unwrap();
            let beneath = mounted.source().join("file");
            fs::write(&beneath, "old").unwrap();
            let mut above = OpenOptions::new();
            let above = above.read(true).write(true);
            let above = above.open(mounted.mnt().join("file")).unwrap();
            let shown = || {
                let mut bytes = vec![0; above.metadata().unwrap().len() as usize];
                above.read_exact_at(&mut bytes, 0).unwrap();
                String::from_utf8(bytes).unwrap()
            };
            assert_eq!(shown(), "old");
            fs::write(&beneath, "longer").unwrap();
            fcntl_lock(&above, FlockOperation::NonBlockingLockExclusive).unwrap();
            assert_eq!(shown(), "longer", "{path}");
            fs::write(&beneath, "others").unwrap();
            flock(&above, FlockOperation::NonBlockingLockExclusive).unwrap();
            assert_eq!(shown(), "others", "{path}");
            drop(above);
            mounted.stop().unwrap();
        });
    }
}

//! Changes beneath a mount are seen through it as soon as the cache mode promises: at once with
//! `cache=never`, within a second by default, and for data at the next open. Over each transport, with
//! passthrough and without.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use thrufs_testing::fence::mapping::{Mapping, Sharing};
use thrufs_testing::steps::Steps;
use thrufs_tests::lower::Lower;
use thrufs_tests::mounted::Mounted;
use thrufs_tests::transport::{Transport, over_each};

/// The default timeout of a second, and a little for the clock ticks of the kernel.
const TIMEOUT: Duration = Duration::from_millis(1100);

/// More than a page, so that old and new data can be mixed up.
fn data(fill: u8) -> Vec<u8> {
    vec![fill; 10_000]
}

/// A change made beneath, as calls of [`Steps`], with what they answer behind `=`.
struct Change {
    name: &'static str,
    /// Makes the old state, beneath.
    prepare: &'static str,
    /// Caches the old state through the mount.
    warm: &'static str,
    /// Makes the change beneath.
    change: &'static str,
    /// Checks the new state through the mount.
    check: &'static str,
}

const OLD: &str = "file file; fill file 0 10000 111";
const IS_OLD: &str = "cat file 0 2 = oo; cat file 5000 2 = oo; cat file 9990 20 = oooooooooo";
const IS_NEW: &str = "cat file 0 2 = nn; cat file 5000 2 = nn; cat file 9990 20 = nnnnnnnnnn";

const fn change(name: &'static str, steps: [&'static str; 4]) -> Change {
    let [prepare, warm, change, check] = steps;
    Change {
        name,
        prepare,
        warm,
        change,
        check,
    }
}

const CHANGES: [Change; 11] = [
    change(
        "content of the same size",
        [OLD, IS_OLD, "fill file 0 10000 110", IS_NEW],
    ),
    change(
        "append",
        [
            OLD,
            IS_OLD,
            "fill file end 4 109",
            "state file = mode 100644 links 1 owner 0:0 size 10004; cat file 9998 20 = oommmm",
        ],
    ),
    change(
        "shrink",
        [
            OLD,
            IS_OLD,
            "truncate file 10",
            "state file = mode 100644 links 1 owner 0:0 size 10; cat file = oooooooooo",
        ],
    ),
    change(
        "rename",
        [
            "file old x",
            "cat old = x; stat new = ENOENT",
            "rename old new",
            "stat old = ENOENT; cat new = x",
        ],
    ),
    change(
        "delete",
        [
            "file file x",
            "cat file = x",
            "unlink file",
            "stat file = ENOENT",
        ],
    ),
    change(
        "create after the name was seen missing",
        ["", "stat file = ENOENT", "file file x", "cat file = x"],
    ),
    change(
        "chmod",
        [
            "file file x",
            "state file = mode 100644 links 1 owner 0:0 size 1",
            "chmod file 600",
            "state file = mode 100600 links 1 owner 0:0 size 1",
        ],
    ),
    change(
        "replaced file",
        [
            OLD,
            IS_OLD,
            "file next; fill next 0 10000 110; rename next file",
            IS_NEW,
        ],
    ),
    change(
        "file replaced by a directory",
        [
            "file name x",
            "cat name = x",
            "unlink name; dir name; file name/inside y",
            "cat name/inside = y",
        ],
    ),
    change(
        "listing",
        [
            "file stays x; file goes x",
            "list . = goes file stays file",
            "unlink goes; file comes x",
            "list . = comes file stays file",
        ],
    ),
    change(
        "extended attribute",
        [
            "file file x; setxattr file user.state old",
            "getxattr file user.state = old",
            "setxattr file user.state newer",
            "getxattr file user.state = newer",
        ],
    ),
];

/// Makes calls in a directory.
fn play(directory: &Path, steps: &str) {
    let mut calls = Steps::new(directory.to_owned(), directory.to_owned());
    for step in steps.split(';').filter(|step| !step.is_empty()) {
        let (call, expected) = step.split_once(" = ").unwrap_or((step, ""));
        let words: Vec<&str> = call.split_whitespace().collect();
        let found = match calls.call(&words) {
            Err(Errno::NOENT) => "ENOENT".to_owned(),
            found => String::from_utf8(found.unwrap()).unwrap(),
        };
        let is_so = expected.is_empty() || found.replace('\n', " ") == expected;
        assert!(is_so, "{step}: {found}");
    }
}

/// All changes, each in a directory of its own, with one wait for all.
fn see_all_changes(options: &str, delay: Duration) {
    let mut mounted = Mounted::start(options);
    let dir_of = |at: usize| format!("change-{at}");
    for (at, change) in CHANGES.iter().enumerate() {
        let beneath = mounted.source().join(dir_of(at));
        fs::create_dir(&beneath).unwrap();
        play(&beneath, change.prepare);
    }
    for (at, change) in CHANGES.iter().enumerate() {
        eprintln!("options \"{options}\": {}", change.name);
        play(&mounted.mnt().join(dir_of(at)), change.warm);
        play(&mounted.source().join(dir_of(at)), change.change);
        if delay.is_zero() {
            play(&mounted.mnt().join(dir_of(at)), change.check);
        }
    }
    if !delay.is_zero() {
        thread::sleep(delay);
        for (at, change) in CHANGES.iter().enumerate() {
            eprintln!("options \"{options}\", later: {}", change.name);
            play(&mounted.mnt().join(dir_of(at)), change.check);
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

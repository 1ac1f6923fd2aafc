//! How many requests an operation costs, counted by the kernel's tracepoint `fuse:fuse_request_send`, the
//! same over each transport. Counts are exact, also on a busy machine: a new request on a hot path fails a
//! test here. Without tracefs the tests skip.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;
use thrufs_testing::user::User;
use thrufs_tests::prelude::*;
use thrufs_tests::tracer::{Requests, requests};

const USER: User = User {
    uid: 1000,
    gid: 1000,
    groups: &[],
};

/// Counts on a mount with all caches, unless skipped.
fn counted(count: impl Fn(&Mounted, &Tracer)) {
    counted_under("cache=always,passthrough", count);
}

/// With passthrough, and with as many WRITE besides as `writes` is given without.
fn counted_on_each_path(count: impl Fn(&Mounted, &Tracer, &dyn Fn(u64) -> Requests)) {
    counted_under("cache=always,passthrough", |mounted, tracer| {
        count(mounted, tracer, &|_| Requests::new());
    });
    counted_under("cache=always,nopassthrough", |mounted, tracer| {
        count(mounted, tracer, &|writes| requests(&[("WRITE", writes)]));
    });
}

fn counted_under(options: &str, count: impl Fn(&Mounted, &Tracer)) {
    counted_on(Lower::Default, options, count);
}

fn counted_on(lower: Lower, options: &str, count: impl Fn(&Mounted, &Tracer)) {
    // One at a time: a child that another test starts inherits open files until exec, and closing them
    // there is a FLUSH.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    on_each(lower, &[options], |mounted, _| {
        match Tracer::start(mounted.mnt()) {
            Ok(tracer) => count(mounted, &tracer),
            Err(error) => skipped(format!("no tracing here: {error}")),
        }
    });
}

/// Asserts that `look` costs no more than this one of the next times. The kernel may reclaim a page of its
/// cache at any moment, and then asks once more; a server that does not let it keep the page is asked every
/// time.
#[track_caller]
fn assert_soon(tracer: &Tracer, look: impl Fn(), expected: &Requests, what: &str) {
    let mut seen = Vec::new();
    while seen.last() != Some(expected) {
        assert!(seen.len() < 5, "{what}: {seen:?}");
        seen.push(tracer.count(&look));
    }
}

#[test]
fn warm_paths_cost_no_request() {
    counted(|mounted, tracer| {
        let mnt = mounted.mnt().to_owned();
        fs::create_dir(mounted.source().join("dir")).unwrap();
        fs::write(mounted.source().join("dir/file"), b"content").unwrap();
        symlink("file", mounted.source().join("dir/link")).unwrap();
        let look = || {
            assert_eq!(fs::metadata(mnt.join("dir/file")).unwrap().len(), 7);
            let link = mnt.join("dir/link");
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read_link(&link).unwrap(), Path::new("file"));
            assert_eq!(fs::metadata(&link).unwrap().len(), 7);
        };
        let cold = tracer.count(look);
        // The tracer sees requests.
        assert!(of(&cold, "LOOKUP") >= 3, "cold: {cold:?}");
        // The kernel expires the access time of a link once it has asked for its target, so the second look
        // asks for that again.
        let second = tracer.count(look);
        assert!(second.values().sum::<u64>() <= 1, "second: {second:?}");
        assert_soon(tracer, look, &Requests::new(), "warm");
    });
}

#[test]
fn a_warm_missing_name_costs_no_request() {
    counted(|mounted, tracer| {
        let path = mounted.mnt().join("missing");
        let look = || assert!(fs::metadata(&path).is_err());
        assert_eq!(tracer.count(look), requests(&[("LOOKUP", 1)]), "cold");
        assert_eq!(tracer.count(look), Requests::new(), "warm");
    });
}

/// A directory of more entries than a READDIRPLUS returns.
fn large_directory(mounted: &Mounted) -> PathBuf {
    let beneath = mounted.source().join("large");
    fs::create_dir(&beneath).unwrap();
    for number in 0..ENTRIES {
        fs::write(beneath.join(number.to_string()), "").unwrap();
    }
    mounted.mnt().join("large")
}

const ENTRIES: usize = 600;

fn list(directory: &Path) {
    assert_eq!(fs::read_dir(directory).unwrap().count(), ENTRIES);
}

fn list_and_stat(directory: &Path) {
    let entries = fs::read_dir(directory).unwrap();
    let stated = entries.map(|entry| rustix::fs::lstat(entry.unwrap().path()).unwrap());
    assert_eq!(stated.count(), ENTRIES);
}

fn of(seen: &Requests, opcode: &str) -> u64 {
    seen.get(opcode).copied().unwrap_or(0)
}

#[test]
fn a_second_listing_is_with_attributes_if_they_are_looked_at() {
    counted_under("", |mounted, tracer| {
        let directory = large_directory(mounted);
        let first = tracer.count(|| list(&directory));
        let found = ["READDIRPLUS", "LOOKUP"].map(|opcode| of(&first, opcode));
        assert_eq!(found, [1, 1], "{first:?}");
        assert!(of(&first, "READDIR") > 0, "{first:?}");
        mounted.settle();
        let second = tracer.count(|| list_and_stat(&directory));
        assert!(of(&second, "READDIRPLUS") > 2, "{second:?}");
        assert_eq!(of(&second, "LOOKUP"), 0, "{second:?}");
        mounted.settle();
        let warm = || list_and_stat(&directory);
        assert_soon(tracer, warm, &Requests::new(), "warm");
    });
}

#[test]
fn a_second_listing_without_attributes_is_kept() {
    counted_under("", |mounted, tracer| {
        let directory = large_directory(mounted);
        list(&directory);
        mounted.settle();
        let second = tracer.count(|| list(&directory));
        assert!(of(&second, "READDIR") > 0, "{second:?}");
        mounted.settle();
        assert_soon(tracer, || list(&directory), &Requests::new(), "warm");
    });
}

/// The kernel does not finish a copy of a listing that it is told to drop before: it would keep none any more. What it
/// finishes later is dropped then, though the directory's time says that nothing has changed.
#[test]
fn a_listing_is_kept_after_one_that_was_left_unfinished_at_a_change() {
    counted_on(Lower::Tmpfs, "", |mounted, tracer| {
        let directory = large_directory(mounted);
        // The first is dropped in any case.
        list(&directory);
        mounted.settle();
        let mut unfinished = fs::read_dir(&directory).unwrap();
        unfinished.by_ref().take(3).for_each(drop);
        let beneath = File::open(mounted.source().join("large")).unwrap();
        let before = beneath.metadata().unwrap().modified().unwrap();
        // Newer names come first on tmpfs.
        fs::write(mounted.source().join("large/new"), "").unwrap();
        beneath.set_modified(before).unwrap();
        mounted.settle();
        drop(unfinished);
        let list = || assert_eq!(fs::read_dir(&directory).unwrap().count(), ENTRIES + 1);
        for _ in 0..3 {
            list();
            mounted.settle();
        }
        assert_soon(tracer, list, &Requests::new(), "warm");
    });
}

/// Attributes that come with the names are kept from then on, those of directories too.
#[test]
fn a_walk_through_directories_costs_two_requests_each_and_a_path_one_for_each_component() {
    counted_on(Lower::Tmpfs, "follow=filesystem", |mounted, tracer| {
        const DIRECTORIES: u64 = 20;
        for number in 0..DIRECTORIES {
            let directory = mounted.source().join(format!("top/{number}/inner"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("file"), "").unwrap();
        }
        mounted.settle();
        // There is no OPENDIR from the second directory on.
        assert_eq!(fs::read_dir(mounted.mnt()).unwrap().count(), 1);
        let top = mounted.mnt().join("top");
        rustix::fs::lstat(&top).unwrap();
        let walked = tracer.count(|| {
            for directory in fs::read_dir(&top).unwrap() {
                let directory = directory.unwrap().path();
                rustix::fs::lstat(&directory).unwrap();
                assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
                rustix::fs::lstat(directory.join("inner")).unwrap();
            }
        });
        // The end of the first one is asked for with attributes: those were looked at meanwhile.
        let expected = [("READDIRPLUS", DIRECTORIES + 2), ("READDIR", DIRECTORIES)];
        assert_eq!(walked, requests(&expected));
        let path = "other/one/two/three/file";
        let beneath = mounted.source().join(path);
        fs::create_dir_all(beneath.parent().unwrap()).unwrap();
        fs::write(&beneath, "").unwrap();
        mounted.settle();
        rustix::fs::lstat(mounted.mnt()).unwrap();
        let looked_up = tracer.count(|| {
            rustix::fs::lstat(mounted.mnt().join(path)).unwrap();
        });
        assert_eq!(looked_up, requests(&[("LOOKUP", 5)]));
    });
}

fn open_and_release() -> Requests {
    requests(&[("OPEN", 1), ("RELEASE", 1)])
}

#[test]
fn a_warm_open_costs_open_and_release() {
    counted(|mounted, tracer| {
        fs::write(mounted.source().join("file"), b"content").unwrap();
        let path = mounted.mnt().join("file");
        assert_eq!(fs::read(&path).unwrap(), b"content");
        let seen = tracer.count(|| drop(File::open(&path).unwrap()));
        assert_eq!(seen, open_and_release());
        // Pages are kept from one open to the next.
        let read = || {
            let mut content = [0; 7];
            let file = File::open(&path).unwrap();
            file.read_exact_at(&mut content, 0).unwrap();
            assert_eq!(&content, b"content");
        };
        assert_soon(tracer, read, &open_and_release(), "with a read");
    });
}

/// Data of a file that is old enough are cached from one open to the next, young ones are not.
#[test]
fn old_data_stay_cached_across_opens() {
    counted_under("nopassthrough,cache=auto", |mounted, tracer| {
        let beneath = mounted.source().join("file");
        fs::write(&beneath, b"content").unwrap();
        let changed = |time| File::open(&beneath).unwrap().set_modified(time).unwrap();
        let path = mounted.mnt().join("file");
        let reads = || {
            let seen = tracer.count(|| {
                let file = File::open(&path).unwrap();
                assert_eq!(file.read_at(&mut [0; 7], 0).unwrap(), 7);
            });
            of(&seen, "READ")
        };
        // A change in the future is young however long the reads take.
        changed(SystemTime::now() + Duration::from_secs(3600));
        assert_eq!([reads(), reads(), reads()], [1; 3], "while it is young");
        changed(SystemTime::now());
        thread::sleep(Duration::from_millis(2_500));
        assert_eq!(reads(), 1, "when it is old");
        let asked = (0..5).position(|_| reads() == 0);
        assert!(asked.is_some(), "it is kept");
    });
}

#[test]
fn a_new_file_costs_lookup_create_flush_and_release() {
    counted(|mounted, tracer| {
        // The root's attributes.
        fs::metadata(mounted.mnt()).unwrap();
        let path = mounted.mnt().join("new");
        let mut seen = tracer.count(|| drop(File::create_new(&path).unwrap()));
        let attributes = seen.remove("GETATTR").unwrap_or(0);
        assert!(attributes <= 1, "{attributes} GETATTR");
        let expected = [("CREATE", 1), ("FLUSH", 1), ("LOOKUP", 1), ("RELEASE", 1)];
        assert_eq!(seen, requests(&expected));
    });
}

const WRITES: u64 = 4096;

fn open_for_writing(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

fn write_many(file: &File) {
    let page = [b'x'; 4096];
    for at in 0..WRITES {
        file.write_all_at(&page, at * 4096).unwrap();
    }
}

/// An empty file beneath that all may write, and its path through the mount.
fn writable_file(mounted: &Mounted) -> PathBuf {
    let beneath = mounted.source().join("file");
    fs::write(&beneath, b"").unwrap();
    fs::set_permissions(&beneath, fs::Permissions::from_mode(0o666)).unwrap();
    mounted.mnt().join("file")
}

/// The one GETXATTR asks for file capabilities before the first write; that there are none is then cached. The open is
/// not counted.
#[test]
fn small_writes_cost_one_getxattr() {
    for uid in [0, USER.uid] {
        let user = User {
            uid,
            gid: uid,
            groups: &[],
        };
        counted_on_each_path(|mounted, tracer, writes| {
            let path = writable_file(mounted);
            let file = user.run(|| open_for_writing(&path));
            let seen = tracer.count(|| user.run(|| write_many(&file)));
            let mut expected = requests(&[("GETXATTR", 1)]);
            expected.extend(writes(WRITES));
            assert_eq!(seen, expected, "{uid}");
            let written = fs::metadata(mounted.source().join("file")).unwrap().len();
            assert_eq!(written, WRITES * 4096);
        });
    }
}

#[test]
fn a_close_after_writing_in_the_server_waits_for_one_flush() {
    counted_under("cache=always,nopassthrough", |mounted, tracer| {
        let path = writable_file(mounted);
        drop(open_for_writing(&path));
        let seen = tracer.count(|| drop(open_for_writing(&path)));
        let expected = requests(&[("FLUSH", 1), ("OPEN", 1), ("RELEASE", 1)]);
        assert_eq!(seen, expected);
        let seen = tracer.count(|| drop(File::open(&path).unwrap()));
        assert_eq!(seen, open_and_release(), "a reader");
    });
}

/// Attributes from the server make the kernel forget that there is nothing to clear.
#[test]
fn a_write_after_an_fstat_asks_once_more() {
    counted_on_each_path(|mounted, tracer, writes| {
        let file = open_for_writing(&writable_file(mounted));
        let seen = tracer.count(|| {
            file.write_all_at(b"x", 0).unwrap();
            assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 1);
            file.write_all_at(b"y", 1).unwrap();
            file.write_all_at(b"z", 2).unwrap();
        });
        let mut expected = requests(&[("GETATTR", 1), ("GETXATTR", 2)]);
        expected.extend(writes(3));
        assert_eq!(seen, expected);
    });
}

/// Privileges are asked for, cleared with one request, and not asked for again.
#[test]
fn writes_that_clear_set_id_bits_cost_one_request_more() {
    counted_on_each_path(|mounted, tracer, writes| {
        let path = writable_file(mounted);
        let file = USER.run(|| open_for_writing(&path));
        fs::set_permissions(&path, PermissionsExt::from_mode(0o6777)).unwrap();
        let seen = tracer.count(|| USER.run(|| write_many(&file)));
        let mut expected = requests(&[("GETXATTR", 1), ("SETATTR", 1)]);
        expected.extend(writes(WRITES));
        assert_eq!(seen, expected);
        let left = fs::metadata(mounted.source().join("file")).unwrap();
        assert_eq!(left.permissions().mode() & 0o7777, 0o777);
    });
}

/// The ACL of the file is cached. That of the root is asked for in every walk by a user who does not own it
/// (seen on Linux 6.18): one GETXATTR is allowed, a second one is not.
#[test]
fn a_warm_open_by_a_user_costs_at_most_one_getxattr_more() {
    counted(|mounted, tracer| {
        let path = writable_file(mounted);
        let open = || drop(USER.run(|| open_for_writing(&path)));
        open();
        let mut seen = tracer.count(open);
        let attributes = seen.remove("GETXATTR").unwrap_or(0);
        assert!(attributes <= 1, "{attributes} GETXATTR");
        let expected = requests(&[("FLUSH", 1), ("OPEN", 1), ("RELEASE", 1)]);
        assert_eq!(seen, expected, "a file that is open for writing");
    });
}

/// Also the first of a name that was looked up, once its data are cached.
#[test]
fn files_that_the_kernel_opens_cost_nothing_while_they_are_cached() {
    for options in [
        "opens=local,ro,cache=always",
        "nopassthrough,ro,cache=always",
        "opens=local,ro",
        "nopassthrough,ro,locks=local",
        "opens=local",
    ] {
        counted_under(options, |mounted, tracer| {
            fs::write(mounted.source().join("file"), b"content").unwrap();
            let path = mounted.mnt().join("file");
            let look = || assert_eq!(fs::read(&path).unwrap(), b"content");
            let first = tracer.count(look);
            let asked = ["OPEN", "READ", "RELEASE"].map(|opcode| of(&first, opcode));
            assert_eq!(asked, [1, 1, 0], "{options}: {first:?}");
            assert!(of(&first, "FLUSH") <= 1, "{options}: {first:?}");
            assert_soon(tracer, look, &Requests::new(), options);
            // For the whole connection.
            fs::write(mounted.source().join("other"), b"content").unwrap();
            let path = mounted.mnt().join("other");
            let other = || drop(fs::read(&path).unwrap());
            let asked = ["OPEN", "READ", "RELEASE", "FLUSH"];
            let first = tracer.count(other);
            assert_eq!(
                asked.map(|opcode| of(&first, opcode)),
                [0, 1, 0, 0],
                "{first:?}"
            );
            assert_soon(tracer, other, &Requests::new(), options);
        });
    }
}

#[test]
fn writing_a_file_that_the_kernel_opens_costs_the_writes() {
    counted_under("opens=local", |mounted, tracer| {
        // Made above: what is made beneath is told, and looked up once more.
        let path = mounted.mnt().join("file");
        fs::write(&path, b"").unwrap();
        drop(open_for_writing(&path));
        let write = || {
            let file = open_for_writing(&path);
            file.write_all_at(b"x", 0).unwrap();
        };
        write();
        let count = |act: &dyn Fn()| {
            let mut seen = tracer.count(act);
            // After a change, and once more when its event has been told, the kernel asks for attributes, and then
            // whether there are privileges to drop.
            for opcode in ["GETATTR", "GETXATTR"] {
                assert!(seen.remove(opcode).unwrap_or(0) <= 2, "{opcode}");
            }
            seen
        };
        assert_eq!(count(&write), requests(&[("WRITE", 1)]));
        let seen = count(&|| fs::write(&path, b"content").unwrap());
        assert_eq!(seen, requests(&[("SETATTR", 1), ("WRITE", 1)]), "truncated");
        let seen = count(&|| drop(File::create_new(path.with_extension("new")).unwrap()));
        assert_eq!(seen, requests(&[("CREATE", 1), ("LOOKUP", 1)]), "created");
        assert_eq!(fs::read(mounted.source().join("file")).unwrap(), b"content");
    });
}

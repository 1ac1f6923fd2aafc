//! Node ids and file handles: stale ones, of other files, and of another kind.

use super::rules::with;
use super::{ROOT, Served, Setup, config, lock, serve, set_mode, shared_locks};
use thrufs::Result;
use thrufs_abi::layout::{CopyFileRangeIn, FallocateIn, SetattrIn};
use thrufs_abi::{FileHandle, LockOwner, SetattrValid};
use thrufs_hostdir::Config;
use thrufs_tests::prelude::*;

const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const SETFLAGS_32: u32 = 0x4004_6602;

/// Every operation on an open file but RELEASE, which has no answer.
pub fn by_file(served: &Served, node: NodeId, fh: u64) -> Vec<(&'static str, Result<()>)> {
    let root = served.root();
    let fallocate = FallocateIn {
        fh,
        length: 10,
        ..Default::default()
    };
    let copy = CopyFileRangeIn {
        fh_in: fh,
        nodeid_out: node.0,
        fh_out: fh,
        off_out: 100,
        len: 1,
        ..Default::default()
    };
    let write = lock(fh, 7, libc::F_WRLCK);
    let mut flock = write;
    flock.lk_flags = thrufs_abi::LkFlags::FLOCK.bits();
    let data = libc::SEEK_DATA as u32;
    vec![
        ("read", root.read(node, fh, 0, 10).map(drop)),
        ("write", root.write(node, fh, 0, b"X", 0).map(drop)),
        ("flush", root.flush(node, fh, LockOwner(7))),
        ("fsync", root.fsync(node, fh)),
        ("fallocate", root.fallocate(node, &fallocate)),
        ("lseek", root.lseek(node, fh, 0, data).map(drop)),
        ("copy", root.copy_file_range(node, &copy).map(drop)),
        ("copy_64", root.copy_file_range_64(node, &copy).map(drop)),
        ("getlk", root.getlk(node, fh, 7, write.lk).map(drop)),
        ("setlk", root.setlk(node, &write, false)),
        ("setlkw", root.setlk(node, &write, true)),
        ("flock", root.setlk(node, &flock, false)),
        ("ioctl", get_flags(served, node, fh)),
    ]
}

fn get_flags(served: &Served, node: NodeId, fh: u64) -> Result<()> {
    let root = served.root();
    root.ioctl(node, FileHandle(fh), GETFLAGS, &[0; 8], 8)
        .map(drop)
}

fn by_directory(served: &Served, node: NodeId, fh: u64) -> Vec<(&'static str, Result<()>)> {
    let root = served.root();
    vec![
        ("readdir", root.readdir(node, fh, 0, 4096, false).map(drop)),
        (
            "readdirplus",
            root.readdir(node, fh, 0, 4096, true).map(drop),
        ),
        ("fsyncdir", root.fsyncdir(node, fh)),
        ("ioctl", get_flags(served, node, fh)),
    ]
}

#[test]
fn an_open_file_serves_requests_about_itself_only() {
    let served = serve(shared_locks());
    for name in ["one", "two"] {
        served.write(name, b"content");
        fs::create_dir(served.path(&format!("dir-{name}"))).unwrap();
    }
    let root = served.root();
    let [one, two, dir_one, dir_two] =
        ["one", "two", "dir-one", "dir-two"].map(|name| root.walk(name).unwrap());
    // Files and directories are numbered separately: these are the same.
    let [of_one, of_two] = [one, two].map(|node| root.open(node, libc::O_RDWR).unwrap().fh);
    let [in_one, in_two] = [dir_one, dir_two].map(|node| root.opendir(node).unwrap().fh);
    assert_eq!((of_one, of_two), (in_one, in_two));
    let are_refused = |answers: Vec<(&str, Result<()>)>, node: NodeId| {
        for (operation, answer) in answers {
            // An ioctl needs no open file: the directory answers it.
            let is_directorys = node == dir_one && operation == "ioctl" && answer.is_ok();
            let refused = answer == Err(Errno::EBADF);
            assert!(refused || is_directorys, "{operation} {node:?} {answer:?}");
        }
    };
    for (node, fh) in [
        (one, of_two),
        (two, of_one),
        (ROOT, of_one),
        (dir_one, of_one),
    ] {
        are_refused(by_file(&served, node, fh), node);
        root.release(node, fh).unwrap();
    }
    for (node, fh) in [(dir_one, in_two), (dir_two, in_one), (ROOT, in_one)] {
        for (operation, answer) in by_directory(&served, node, fh) {
            assert_eq!(answer, Err(Errno::EBADF), "{operation} {node:?}");
        }
        root.releasedir(node, fh).unwrap();
    }
    // A copy has two files, each with its own handle.
    let copy = CopyFileRangeIn {
        fh_in: of_one,
        nodeid_out: one.0,
        fh_out: of_two,
        len: 3,
        ..Default::default()
    };
    assert_eq!(root.copy_file_range(one, &copy), Err(Errno::EBADF));
    for name in ["one", "two"] {
        assert_eq!(fs::read(served.path(name)).unwrap(), b"content");
    }
    // All are still open, and work.
    let work = |answers: Vec<(&str, Result<()>)>| {
        for (operation, answer) in answers {
            let is_unknown = operation == "ioctl" && answer == Err(Errno::ENOTTY);
            assert!(is_unknown || answer.is_ok(), "{operation}: {answer:?}");
        }
    };
    for (node, fh) in [(one, of_one), (two, of_two)] {
        work(by_file(&served, node, fh));
        root.release(node, fh).unwrap();
        are_refused(by_file(&served, node, fh), node);
        root.release(node, fh).unwrap();
    }
    for (node, fh) in [(dir_one, in_one), (dir_two, in_two)] {
        work(by_directory(&served, node, fh));
        root.releasedir(node, fh).unwrap();
        for (operation, answer) in by_directory(&served, node, fh) {
            assert_eq!(answer, Err(Errno::EBADF), "{operation} after release");
        }
    }
    let statistics = served.statistics();
    assert_eq!((statistics.open_files, statistics.open_directories), (0, 0));
    assert_eq!(statistics.lock_owners, 0);
}

#[test]
fn a_size_is_that_of_the_file_that_is_asked_for() {
    let served = serve(Config::default());
    let root = served.root();
    let [one, two] = ["one", "two"].map(|name| served.file(name, b"content"));
    let of_two = root.open(two, libc::O_RDWR).unwrap().fh;
    let set = SetattrIn {
        fh: of_two,
        size: 3,
        ..super::set(SetattrValid::SIZE | SetattrValid::FH)
    };
    assert_eq!(root.setattr(one, &set).unwrap().attr.size, 3);
    assert_eq!(fs::read(served.path("one")).unwrap(), b"con");
    assert_eq!(fs::read(served.path("two")).unwrap(), b"content");
}

/// The kernel translates the requests of 32-bit programs; untranslated, only a hostile client sends them.
#[test]
fn flags_of_files_stay_as_they_are_where_a_tree_or_a_rule_is_read_only() {
    let rule = "[[rule]]\npath = '**'\naction = 'read-only'\n";
    let setups: [Setup; 2] = [config(|it| it.read_only = true).into(), with(rule).into()];
    for setup in setups {
        let served = serve(setup);
        fs::create_dir(served.path("dir")).unwrap();
        let (root, file) = (served.root(), served.file("file", b""));
        let dir = root.walk("dir").unwrap();
        let file = (file, root.open(file, libc::O_RDONLY).unwrap().fh);
        for (node, fh) in [file, (dir, root.opendir(dir).unwrap().fh)] {
            for (command, bytes) in [(SETFLAGS, 8), (SETFLAGS_32, 4)] {
                let mut flags = vec![0; bytes];
                // FS_NODUMP_FL
                flags[0] = 0x40;
                let set = root.ioctl(node, FileHandle(fh), command, &flags, 0);
                let refusal = if bytes == 8 {
                    Errno::EROFS
                } else {
                    Errno::ENOTTY
                };
                assert_eq!(set, Err(refusal), "{command:#x}");
            }
        }
    }
}

/// Every operation on a node, none of which may have an effect here.
pub fn by_node(served: &Served, node: NodeId) -> Vec<(&'static str, Result<()>)> {
    let root = served.root();
    let set = set_mode(0);
    vec![
        ("lookup", root.lookup(node, b"there").map(drop)),
        ("getattr", root.getattr(node).map(drop)),
        ("statx", root.statx(node, 0xfff).map(drop)),
        ("setattr", root.setattr(node, &set).map(drop)),
        ("readlink", root.readlink(node).map(drop)),
        ("symlink", root.symlink(node, b"new", b"x").map(drop)),
        (
            "mknod",
            root.mknod(node, b"new", libc::S_IFREG, 0).map(drop),
        ),
        ("mkdir", root.mkdir(node, b"new", 0o755).map(drop)),
        ("unlink", root.unlink(node, b"there")),
        ("rmdir", root.rmdir(node, b"there")),
        (
            "rename of",
            root.rename((node, b"there"), (ROOT, b"new"), 0),
        ),
        (
            "rename in",
            root.rename((ROOT, b"other"), (node, b"new"), 0),
        ),
        ("link of", root.link(node, ROOT, b"new").map(drop)),
        ("link in", root.link(ROOT, node, b"new").map(drop)),
        ("open", root.open(node, libc::O_RDONLY).map(drop)),
        (
            "create",
            root.create(node, b"new", libc::O_RDWR, 0).map(drop),
        ),
        ("tmpfile", root.tmpfile(node, libc::O_RDWR, 0o644).map(drop)),
        ("opendir", root.opendir(node).map(drop)),
        ("statfs", root.statfs(node).map(drop)),
        ("syncfs", root.syncfs(node)),
        ("setxattr", root.setxattr(node, b"user.x", b"1", 0)),
        ("getxattr", root.getxattr(node, b"user.x").map(drop)),
        ("listxattr", root.listxattr(node).map(drop)),
        ("removexattr", root.removexattr(node, b"user.x")),
    ]
}

#[test]
fn a_node_that_is_not_known_is_stale_whatever_is_asked() {
    let served = serve(Config::default());
    fs::create_dir(served.path("dir")).unwrap();
    served.write("dir/there", b"");
    let root = served.root();
    let forgotten = root.walk("dir").unwrap();
    root.forget(forgotten, 1);
    // The same place, with another generation.
    let other = served.file("other", b"");
    assert_eq!(other.0 as u32, forgotten.0 as u32);
    let generations = [
        other.0 + (1 << 32),
        other.0 | 1 << 63,
        u64::from(other.0 as u32),
    ];
    let others = [0, u64::MAX, 1 << 32 | 1, 1 << 20, u64::from(u32::MAX)];
    let numbers = generations.into_iter().chain(others).chain([forgotten.0]);
    for number in numbers.filter(|number| *number != other.0) {
        for (operation, answer) in by_node(&served, NodeId(number)) {
            assert_eq!(answer, Err(Errno::ESTALE), "{operation} {number:#x}");
        }
    }
    assert_eq!(fs::read_dir(served.path("dir")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(served.directory.path()).unwrap().count(), 2);
}

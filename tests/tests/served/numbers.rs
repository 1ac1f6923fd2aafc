//! Offsets, lengths, ids, modes and masks that a kernel would not send.

use super::{ROOT, Served, lock, serve, set, shared_locks};
use thrufs::Result;
use thrufs_abi::SetattrValid;
use thrufs_abi::layout::{CopyFileRangeIn, FallocateIn, LkIn, SetattrIn};
use thrufs_hostdir::Config;
use thrufs_tests::prelude::*;

const MOST: u64 = i64::MAX as u64;

/// Beyond the kernel's largest offset: negative.
const NEGATIVE: [u64; 4] = [MOST + 1, u64::MAX - 4096, u64::MAX - 1, u64::MAX];

struct File {
    served: Served,
    node: NodeId,
    fh: u64,
}

fn file() -> File {
    let served = serve(shared_locks());
    let node = served.file("file", b"content");
    let fh = served.root().open(node, libc::O_RDWR).unwrap().fh;
    File { served, node, fh }
}

#[track_caller]
fn refused<T>(answer: Result<T>, what: &str, number: u64) {
    let error = answer.map(drop).expect_err(what);
    // The lower file system chooses between these.
    use Errno as E;
    let known = [E::EINVAL, E::EFBIG, E::EOVERFLOW, E::ENXIO, E::ENOSPC];
    assert!(known.contains(&error), "{what} {number:#x}: {error}");
}

#[test]
fn offsets_that_are_negative_or_overflow() {
    let File { served, node, fh } = file();
    let root = served.root();
    for offset in NEGATIVE {
        refused(root.read(node, fh, offset, 10), "read", offset);
        refused(root.write(node, fh, offset, b"XX", 0), "write", offset);
        for whence in [libc::SEEK_DATA, libc::SEEK_HOLE] {
            refused(root.lseek(node, fh, offset, whence as u32), "lseek", offset);
        }
        let size = SetattrIn {
            size: offset,
            ..set(SetattrValid::SIZE)
        };
        refused(root.setattr(node, &size), "size", offset);
    }
    // The last byte there can be lies before the last offset.
    for offset in [MOST, MOST - 1] {
        refused(root.write(node, fh, offset, b"XX", 0), "write", offset);
        let read = root.read(node, fh, offset, 10);
        assert!(read.unwrap_or_default().is_empty());
    }
    for whence in [libc::SEEK_SET, libc::SEEK_CUR, libc::SEEK_END, 5, -1] {
        let sought = root.lseek(node, fh, 0, whence as u32);
        assert_eq!(sought, Err(Errno::EINVAL), "{whence}");
    }
    assert_eq!(fs::read(served.path("file")).unwrap(), b"content");
}

#[test]
fn ranges_that_are_negative_or_overflow() {
    let File { served, node, fh } = file();
    let root = served.root();
    let ranges = NEGATIVE
        .into_iter()
        .flat_map(|far| [(far, 1), (0, far), (far, far)]);
    let ranges = ranges.chain([(MOST, 1), (MOST - 1, 2), (1, MOST), (0, 0)]);
    let fallocate = |offset, length, mode: i32| {
        let arg = FallocateIn {
            fh,
            offset,
            length,
            mode: mode as u32,
            ..Default::default()
        };
        root.fallocate(node, &arg)
    };
    let (keep, punch) = (libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_PUNCH_HOLE);
    for (offset, length) in ranges {
        for mode in [0, keep, keep | punch] {
            refused(fallocate(offset, length, mode), "fallocate", offset);
        }
    }
    assert_eq!(fallocate(0, 1, 1 << 30), Err(Errno::EOPNOTSUPP));
    let to = served.file("to", b"other");
    let copy = CopyFileRangeIn {
        fh_in: fh,
        nodeid_out: to.0,
        fh_out: root.open(to, libc::O_RDWR).unwrap().fh,
        len: 1,
        ..Default::default()
    };
    for far in NEGATIVE {
        for (off_in, off_out) in [(far, 0), (0, far)] {
            let copy = CopyFileRangeIn {
                off_in,
                off_out,
                ..copy
            };
            refused(root.copy_file_range(node, &copy), "copy", far);
            refused(root.copy_file_range_64(node, &copy), "copy", far);
        }
    }
    let copy = CopyFileRangeIn { flags: 1, ..copy };
    assert_eq!(root.copy_file_range(node, &copy), Err(Errno::EINVAL));
    assert_eq!(fs::read(served.path("file")).unwrap(), b"content");
    assert_eq!(fs::read(served.path("to")).unwrap(), b"other");
}

#[test]
fn ranges_of_locks() {
    let File { served, node, fh } = file();
    let root = served.root();
    let with = |start, end, kind: i32| {
        let mut arg = lock(fh, 7, kind);
        (arg.lk.start, arg.lk.end) = (start, end);
        arg
    };
    let set = |arg: &LkIn| root.setlk(node, arg, false);
    let invalid = Err(Errno::EINVAL);
    for (start, end) in [
        (MOST + 1, u64::MAX),
        (u64::MAX, u64::MAX),
        (5, 4),
        (u64::MAX, 0),
    ] {
        let arg = with(start, end, libc::F_WRLCK);
        assert_eq!(set(&arg), invalid);
        assert_eq!(root.setlk(node, &arg, true), invalid);
        assert_eq!(root.getlk(node, fh, 7, arg.lk).map(drop), invalid);
    }
    for kind in [-1, 3, 1 << 16] {
        let mut arg = with(0, MOST, kind);
        assert_eq!(set(&arg), invalid, "{kind}");
        arg.lk_flags = thrufs_abi::LkFlags::FLOCK.bits();
        assert_eq!(set(&arg), invalid, "{kind}");
    }
    // To the end, in both encodings: the last byte is locked.
    let in_the_way = || {
        let last = with(MOST, MOST, libc::F_RDLCK);
        let found = root.getlk(node, fh, 8, last.lk).unwrap();
        (found.kind as i32, found.start, found.end)
    };
    set(&with(0, u64::MAX, libc::F_WRLCK)).unwrap();
    assert_eq!(in_the_way(), (libc::F_WRLCK, 0, MOST));
    set(&with(0, MOST - 1, libc::F_UNLCK)).unwrap();
    assert_eq!(in_the_way(), (libc::F_WRLCK, MOST, MOST));
    // An owner without locks releases none.
    let mut others = with(0, MOST, libc::F_UNLCK);
    others.owner = 99;
    set(&others).unwrap();
    assert_eq!(in_the_way(), (libc::F_WRLCK, MOST, MOST));
}

#[test]
fn a_listing_from_nowhere() {
    let served = serve(Config::default());
    for number in 0..50 {
        served.write(&format!("f{number}"), b"");
    }
    let root = served.root();
    let fh = root.opendir(ROOT).unwrap().fh;
    for plus in [false, true] {
        let all = root.readdir(ROOT, fh, 0, 65_536, plus).unwrap().len();
        for offset in NEGATIVE.into_iter().chain([MOST, 12_345, 1]) {
            // An error or some names; and the next listing is as before.
            let _ = root.readdir(ROOT, fh, offset, 4096, plus);
            assert_eq!(root.readdir(ROOT, fh, 0, 65_536, plus).unwrap().len(), all);
        }
        for size in [0, 1, 23, 24, 63, 1 << 20] {
            let listed = root.readdir(ROOT, fh, 0, size, plus);
            assert!(listed.is_ok_and(|listed| listed.len() <= all), "{size}");
        }
    }
}

#[test]
fn masks_of_changes() {
    let served = serve(Config::default());
    fs::create_dir(served.path("dir")).unwrap();
    let (root, file) = (served.root(), served.file("file", b"content"));
    let dir = root.walk("dir").unwrap();
    let set = |valid: u32, mode: u32, size: u64| SetattrIn {
        valid,
        mode,
        size,
        ..Default::default()
    };
    // A mode has no type, and a file keeps its own.
    let mode = SetattrValid::MODE.bits();
    root.setattr(file, &set(mode, libc::S_IFDIR | 0o640, 0))
        .unwrap();
    root.setattr(dir, &set(mode, u32::MAX, 0)).unwrap();
    let beneath = |name: &str| fs::metadata(served.path(name)).unwrap().mode();
    assert_eq!(beneath("file"), libc::S_IFREG | 0o640);
    assert_eq!(beneath("dir"), libc::S_IFDIR | 0o7777);
    // Unknown bits change nothing.
    let unknown = !SetattrValid::all().bits();
    root.setattr(file, &set(unknown, 0, 0)).unwrap();
    assert_eq!(fs::read(served.path("file")).unwrap(), b"content");
    assert_eq!(beneath("file"), libc::S_IFREG | 0o640);
    // Only files have a size to set.
    let size = SetattrValid::SIZE.bits();
    let fifo = root.mknod(ROOT, b"fifo", libc::S_IFIFO | 0o600, 0).unwrap();
    let link = NodeId(root.symlink(ROOT, b"link", b"file").unwrap().nodeid);
    let invalid = Errno::EINVAL;
    for (node, errno) in [
        (dir, Errno::EISDIR),
        (NodeId(fifo.nodeid), invalid),
        (link, invalid),
    ] {
        assert_eq!(root.setattr(node, &set(size, 0, 0)).map(drop), Err(errno));
    }
    assert!(root.setattr(link, &set(mode, 0o777, 0)).is_err());
    assert_eq!(fs::read(served.path("file")).unwrap(), b"content");
    // With a handle that is not open: by the node.
    let by_handle = SetattrIn {
        fh: 12_345,
        ..set(size | SetattrValid::FH.bits(), 0, 3)
    };
    root.setattr(file, &by_handle).unwrap();
    assert_eq!(fs::read(served.path("file")).unwrap(), b"con");
    // The id that is none owns nothing.
    for valid in [SetattrValid::UID, SetattrValid::GID] {
        let set = SetattrIn {
            uid: u32::MAX,
            gid: u32::MAX,
            ..super::set(valid)
        };
        assert_eq!(root.setattr(file, &set).map(drop), Err(invalid));
    }
    // Nanoseconds stay below one second.
    let times = SetattrIn {
        valid: (SetattrValid::ATIME | SetattrValid::MTIME).bits(),
        atime: 5,
        atimensec: u32::MAX,
        mtime: 6,
        mtimensec: 1_073_741_823,
        ..Default::default()
    };
    root.setattr(file, &times).unwrap();
    let metadata = fs::metadata(served.path("file")).unwrap();
    assert_eq!((metadata.atime(), metadata.mtime()), (5, 6));
}

#[test]
fn types_and_modes_of_what_is_made() {
    let served = serve(Config::default());
    let root = served.root();
    for mode in [libc::S_IFDIR, libc::S_IFLNK, libc::S_IFMT, 0o030_000] {
        let made = root.mknod(ROOT, b"x", mode | 0o644, 0).map(drop);
        assert_eq!(made, Err(Errno::EINVAL), "{mode:o}");
    }
    let plain = root.mknod(ROOT, b"plain", 0o666, 0).unwrap();
    assert_eq!(plain.attr.mode, libc::S_IFREG | 0o644);
    let dir = root.mkdir(ROOT, b"dir", libc::S_IFREG | 0o777).unwrap();
    assert_eq!(dir.attr.mode, libc::S_IFDIR | 0o755);
    let (file, _) = root
        .create(ROOT, b"file", libc::O_RDWR, libc::S_IFLNK | 0o666)
        .unwrap();
    assert_eq!(file.attr.mode, libc::S_IFREG | 0o644);
    assert!(fs::symlink_metadata(served.path("x")).is_err());
}

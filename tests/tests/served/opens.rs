//! Flags of open(2) that must not reach the files beneath, from any caller.

use super::{ROOT, Served, config, connect, is_root, serve};
use rustix::fs::IFlags;
use std::os::unix::fs::FileTypeExt;
use thrufs_abi::OpenReplyFlags;
use thrufs_hostdir::Config;
use thrufs_tests::prelude::*;

/// Those that say how a file is opened, not how it is used.
const NOT_BENEATH: [i32; 11] = [
    libc::O_APPEND,
    libc::O_ASYNC,
    libc::O_CREAT,
    libc::O_DIRECT,
    libc::O_DIRECTORY,
    libc::O_EXCL,
    libc::O_NOCTTY,
    libc::O_NOFOLLOW,
    libc::O_NONBLOCK,
    libc::O_PATH,
    libc::O_TMPFILE,
];

fn uncached() -> Served {
    serve(config(|it| it.passthrough = false))
}

/// The flags of this process's one descriptor of `path` for I/O.
fn flags_beneath(path: &Path) -> i32 {
    let mut flags = Vec::new();
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap().path();
        if fs::read_link(&entry).is_ok_and(|target| target == path) {
            let name = entry.file_name().unwrap().to_str().unwrap();
            let info = fs::read_to_string(format!("/proc/self/fdinfo/{name}")).unwrap_or_default();
            let octal = info.lines().find_map(|line| line.strip_prefix("flags:"));
            flags.push(i32::from_str_radix(octal.unwrap_or("0").trim(), 8).unwrap());
        }
    }
    flags.retain(|flags| flags & libc::O_PATH == 0);
    assert_eq!(flags.len(), 1, "{flags:?}");
    flags[0]
}

fn expected(access: i32) -> i32 {
    // O_LARGEFILE, which the kernel adds.
    access | libc::O_CLOEXEC | 0o100_000
}

#[test]
fn an_open_passes_on_how_a_file_is_used_only() {
    let served = uncached();
    let (root, node) = (served.root(), served.file("file", b"content"));
    let path = served.path("file").canonicalize().unwrap();
    let all = NOT_BENEATH.iter().fold(0, |all, flag| all | flag);
    for flag in NOT_BENEATH.into_iter().chain([0, all]) {
        for access in [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR] {
            let fh = root.open(node, access | flag).unwrap().fh;
            assert_eq!(flags_beneath(&path), expected(access), "{flag:#o}");
            let read = root.read(node, fh, 0, 10);
            assert_eq!(read.is_ok(), access != libc::O_WRONLY, "{flag:#o}");
            let written = root.write(node, fh, 0, b"c", 0);
            assert_eq!(written.is_ok(), access != libc::O_RDONLY, "{flag:#o}");
            root.release(node, fh).unwrap();
        }
    }
    assert_eq!(fs::read(&path).unwrap(), b"content");
    // Flags of its use do.
    let fh = root.open(node, libc::O_RDWR | libc::O_SYNC).unwrap().fh;
    assert_eq!(flags_beneath(&path), expected(libc::O_RDWR | libc::O_SYNC));
    root.release(node, fh).unwrap();
    let fh = root.open(node, libc::O_RDONLY | libc::O_TRUNC).unwrap().fh;
    assert_eq!(root.write(node, fh, 0, b"c", 0), Err(Errno::EBADF));
    assert_eq!(fs::read(&path).unwrap(), b"");
}

#[test]
fn a_creation_passes_on_no_more() {
    let served = uncached();
    let root = served.root();
    for (number, flag) in NOT_BENEATH.into_iter().chain([libc::O_TRUNC]).enumerate() {
        let name = format!("file{number}");
        let created = root.create(ROOT, name.as_bytes(), libc::O_RDWR | flag, 0o644);
        let (entry, open) = created.unwrap();
        let path = served.path(&name).canonicalize().unwrap();
        let flags = flags_beneath(&path) & !libc::O_NOFOLLOW;
        assert_eq!(flags, expected(libc::O_RDWR), "{flag:#o}");
        let node = NodeId(entry.nodeid);
        root.write(node, open.fh, 0, b"content", 0).unwrap();
        // It was new, whatever the flags say, and is not made twice.
        let again = root.create(ROOT, name.as_bytes(), libc::O_RDWR | flag, 0o644);
        let expected = match flag {
            libc::O_EXCL => Errno::EEXIST,
            _ => Errno::ESTALE,
        };
        assert_eq!(again.map(drop), Err(expected), "{flag:#o}");
        assert_eq!(fs::read(&path).unwrap(), b"content");
        root.release(node, open.fh).unwrap();
    }
    // A link is no file to create, wherever it leads.
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("new");
    symlink(&target, served.path("link")).unwrap();
    let created = root.create(ROOT, b"link", libc::O_RDWR, 0o644).map(drop);
    assert_eq!(created, Err(Errno::ESTALE));
    assert!(!target.exists());
}

/// The kernel above asks the server to truncate before it looks whether the file is a running program, unless
/// the open is for writing.
#[test]
fn a_running_program_is_not_truncated_by_a_reader() {
    const FMODE_EXEC: i32 = 0x20;
    for passthrough in [false, true] {
        let served = serve(config(|it| it.passthrough = passthrough));
        let (root, node) = (served.root(), served.file("program", b"content"));
        let path = served.path("program");
        let open = |flags| root.open(node, flags).map(|opened| opened.fh);
        let truncating = libc::O_RDONLY | libc::O_TRUNC;
        // Of the program and of another that runs it.
        let [first, second] = [(); 2].map(|()| open(FMODE_EXEC).unwrap());
        root.release(node, first).unwrap();
        for flags in [truncating, libc::O_ACCMODE | libc::O_TRUNC] {
            assert_eq!(open(flags), Err(Errno::ETXTBSY));
            assert_eq!(fs::read(&path).unwrap(), b"content");
        }
        let reader = open(libc::O_RDONLY).unwrap();
        // The program ends, and RELEASE comes after an open that was made then.
        thread::scope(|scope| {
            let opening = scope.spawn(|| open(truncating));
            thread::sleep(Duration::from_millis(5));
            root.release(node, second).unwrap();
            opening.join().unwrap().unwrap();
        });
        assert_eq!(fs::read(&path).unwrap(), b"");
        // An interpreter stays open as long as it is mapped, but writers may open it: the kernel knows.
        served.write("program", b"content");
        open(FMODE_EXEC).unwrap();
        for access in [libc::O_WRONLY, libc::O_RDWR] {
            open(access | libc::O_TRUNC).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"");
        }
        root.release(node, reader).unwrap();
    }
}

#[test]
fn only_files_are_opened_as_files_and_directories_as_directories() {
    let served = uncached();
    let root = served.root();
    served.write("file", b"");
    fs::create_dir(served.path("dir")).unwrap();
    for (name, kind) in [(&b"fifo"[..], libc::S_IFIFO), (b"socket", libc::S_IFSOCK)] {
        root.mknod(ROOT, name, kind | 0o666, 0).unwrap();
    }
    root.symlink(ROOT, b"link", b"file").unwrap();
    let socket = fs::symlink_metadata(served.path("socket")).unwrap();
    assert!(socket.file_type().is_socket());
    let both = libc::O_RDWR;
    for (name, as_file, as_directory) in [
        ("file", None, Some(Errno::ENOTDIR)),
        ("dir", Some(Errno::EISDIR), None),
        ("fifo", Some(Errno::ENXIO), Some(Errno::ENOTDIR)),
        ("socket", Some(Errno::ENXIO), Some(Errno::ENOTDIR)),
        ("link", Some(Errno::ENXIO), Some(Errno::ELOOP)),
    ] {
        let node = root.walk(name).unwrap();
        for flags in [libc::O_RDONLY, both, libc::O_PATH, both | libc::O_TRUNC] {
            assert_eq!(root.open(node, flags).err(), as_file, "{name} {flags:#o}");
        }
        assert_eq!(root.opendir(node).err(), as_directory, "{name}");
    }
    let statistics = served.statistics();
    assert_eq!((statistics.open_files, statistics.open_directories), (4, 1));
}

/// A file for appending alone is opened for that, and not where whole pages are written.
#[test]
fn a_file_that_only_grows_is_opened_to_append() {
    skip_if!(!is_root());
    for writeback in [false, true] {
        let served = serve(config(|it| {
            it.writeback = writeback;
            it.passthrough = false;
        }));
        let (root, node) = (served.root(), served.file("file", b"content"));
        let beneath = File::open(served.path("file")).unwrap();
        let before = rustix::fs::ioctl_getflags(&beneath).unwrap_or(IFlags::empty());
        if rustix::fs::ioctl_setflags(&beneath, before | IFlags::APPEND).is_err() {
            skipped("the file system has no append-only files");
            return;
        }
        let refused = root.open(node, libc::O_WRONLY).map(drop);
        let appending = root.open(node, libc::O_WRONLY | libc::O_APPEND);
        let appended = appending.and_then(|open| root.write(node, open.fh, 7, b"!", 0));
        rustix::fs::ioctl_setflags(&beneath, before).unwrap();
        assert_eq!(refused, Err(Errno::EPERM));
        let expected = if writeback { Err(Errno::EPERM) } else { Ok(1) };
        assert_eq!(appended, expected, "{writeback}");
    }
}

/// Of a file that has long been so, as this is.
#[test]
fn what_is_cached_of_a_file_that_stays_is_kept() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let client = connect(directory, Config::default());
    let root = client.root();
    let node = root.walk("Cargo.toml").unwrap();
    for expected in [0, OpenReplyFlags::KEEP_CACHE.bits()] {
        let open = root.open(node, libc::O_RDONLY).unwrap();
        let kept = open.open_flags & OpenReplyFlags::KEEP_CACHE.bits();
        assert_eq!(kept, expected);
        root.release(node, open.fh).unwrap();
    }
}

//! Which owner F_GETLK reports for a conflicting lock, and when an owner's locks are dropped.

use super::mount_locks::ten_bytes;
use super::{is_root, lock, serve, shared_locks};
use std::fs::File;
use thrufs::Errno;
use thrufs_abi::{LkFlags, LockOwner, NodeId};
use thrufs_hostdir::Config;
use thrufs_sys::lock::{LockKind, ofd_set};
use thrufs_tests::skip_if;

/// Ranges from here on are locked beneath as they are, also where a file could be mapped.
const AS_THEY_ARE: u64 = 1 << 30;

#[test]
fn getlk_reports_the_process_that_holds_the_lock() {
    let served = serve(shared_locks());
    let root = served.root();
    let [one, two] = ["one", "two"].map(|name| {
        let node = served.file(name, b"");
        (node, root.open(node, libc::O_RDWR).unwrap().fh)
    });
    let range = |fh, owner: u64, kind, start| {
        let mut arg = lock(fh, owner, kind);
        let start = AS_THEY_ARE + start;
        (arg.lk.start, arg.lk.end, arg.lk.pid) = (start, start + 9, owner as u32 * 100);
        arg
    };
    let (read, write) = (libc::F_RDLCK, libc::F_WRLCK);
    for ((node, fh), owner, kind, start) in [
        (one, 1, write, 0),
        (one, 2, read, 20),
        (one, 3, read, 20),
        // The owner itself, and unknown ones, on the other file.
        (one, 9, read, 40),
        (two, 4, read, 40),
        (two, 9, write, 60),
    ] {
        let taken = root.setlk(node, &range(fh, owner, kind, start), false);
        assert_eq!(taken, Ok(()), "{owner}");
    }
    let beneath = File::open(served.path("one")).unwrap();
    ofd_set(&beneath, &ten_bytes(LockKind::Read, AS_THEY_ARE + 40)).unwrap();
    let holder = |(node, fh): (NodeId, u64), start| {
        let found = root.getlk(node, fh, 9, range(fh, 9, write, start + 5).lk);
        let found = found.unwrap();
        if found.kind != libc::F_UNLCK as u32 {
            let start = AS_THEY_ARE + start;
            assert_eq!((found.start, found.end), (start, start + 9));
        }
        (found.kind as i32, found.pid)
    };
    assert_eq!(holder(one, 0), (write, 100));
    let (kind, pid) = holder(one, 20);
    assert!(kind == read && [200, 300].contains(&pid), "{kind} {pid}");
    assert_eq!(holder(one, 40), (read, 0), "from beneath");
    assert_eq!(holder(two, 40), (read, 400));
    assert_eq!(holder(two, 60).0, libc::F_UNLCK, "its own");
    let statistics = served.statistics();
    assert_eq!(statistics.lock_owners, 6);
}

/// A guest cannot be told to drop the pages that it has mapped: its close does that.
#[test]
fn without_notifications_the_mount_keeps_its_lock_until_the_last_owner_closes_the_file() {
    let served = serve(shared_locks());
    let (root, node) = (served.root(), served.file("file", b""));
    let fh = root.open(node, libc::O_RDWR).unwrap().fh;
    let range = |owner, kind, start| {
        let mut arg = lock(fh, owner, kind);
        (arg.lk.start, arg.lk.end) = (start, start + 9);
        arg
    };
    let set = |owner, kind, start| root.setlk(node, &range(owner, kind, start), false);
    let options = File::options().read(true).write(true).clone();
    let beneath = options.open(served.path("file")).unwrap();
    let try_beneath = || ofd_set(&beneath, &ten_bytes(LockKind::Write, 100)).is_ok();
    let unlock_beneath = || ofd_set(&beneath, &ten_bytes(LockKind::Unlock, 100)).unwrap();
    let mount_locks = || served.statistics().mount_locks;
    for _ in 0..2 {
        assert!(try_beneath());
        assert_eq!(set(1, libc::F_WRLCK, 0), Err(Errno::EAGAIN));
        unlock_beneath();
        assert_eq!(set(1, libc::F_WRLCK, 0), Ok(()));
        assert_eq!(set(2, libc::F_WRLCK, 9), Err(Errno::EAGAIN));
        assert_eq!(set(2, libc::F_RDLCK, 10), Ok(()));
        assert_eq!(set(1, libc::F_UNLCK, 0), Ok(()));
        assert_eq!(set(2, libc::F_UNLCK, 0), Ok(()));
        root.flush(node, fh, LockOwner(1)).unwrap();
        assert_eq!(mount_locks(), 1);
        assert!(!try_beneath());
        root.flush(node, fh, LockOwner(2)).unwrap();
        assert_eq!(mount_locks(), 0);
    }
    assert!(try_beneath());
    // Nobody is the mount.
    unlock_beneath();
    assert_eq!(set(1, libc::F_WRLCK, 0), Ok(()));
    let of_mount = u64::MAX;
    assert_eq!(set(of_mount, libc::F_UNLCK, 0), Err(Errno::EINVAL));
    root.flush(node, fh, LockOwner(of_mount)).unwrap();
    assert!(!try_beneath());
}

/// A guest cannot be told what changes beneath.
#[test]
fn without_notifications_attributes_of_locked_files_are_not_kept() {
    for flock in [false, true] {
        let served = serve(shared_locks());
        let (root, node) = (served.root(), served.file("file", b"before"));
        let fh = root.open(node, libc::O_RDWR).unwrap().fh;
        let kept = || root.getattr(node).unwrap().attr_valid;
        assert_eq!(kept(), 1);
        served.write("file", b"later");
        let mut arg = lock(fh, 1, libc::F_WRLCK);
        if flock {
            arg.lk_flags = LkFlags::FLOCK.bits();
        }
        root.setlk(node, &arg, false).unwrap();
        assert_eq!(kept(), 0, "{flock}");
        assert_eq!(root.lookup(NodeId::ROOT, b"file").unwrap().attr_valid, 0);
    }
}

/// POSIX: also the close of a read-only descriptor that took no lock.
#[test]
fn a_close_of_any_descriptor_drops_what_its_owner_holds() {
    let served = serve(shared_locks());
    let (root, node) = (served.root(), served.file("file", b""));
    let [locked, other] =
        [libc::O_RDWR, libc::O_RDONLY].map(|flags| root.open(node, flags).unwrap().fh);
    let take = |owner| root.setlk(node, &lock(locked, owner, libc::F_WRLCK), false);
    take(1).unwrap();
    root.flush(node, other, LockOwner(2)).unwrap();
    assert_eq!(take(2), Err(Errno::EAGAIN), "it is no lock of the second");
    root.flush(node, other, LockOwner(1)).unwrap();
    assert_eq!(take(2), Ok(()));
}

/// The descriptor that an open file without passthrough has is locked.
#[test]
fn a_flock_of_an_open_file_costs_no_further_descriptor() {
    skip_if!(!is_root());
    let served = serve(Config {
        user_descriptors_max: Some(1),
        ..shared_locks()
    });
    let node = served.file("file", b"");
    let user = served.user(1001, 1001);
    let fh = user.open(node, libc::O_RDONLY).unwrap().fh;
    assert_eq!(user.open(node, libc::O_RDONLY), Err(Errno::ENFILE));
    let mut flock = lock(fh, 1, libc::F_RDLCK);
    flock.lk_flags = LkFlags::FLOCK.bits();
    assert_eq!(user.setlk(node, &flock, false), Ok(()));
}

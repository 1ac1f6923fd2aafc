//! Which owner F_GETLK reports for a conflicting lock, and when an owner's locks are dropped.

use super::mount_locks::ten_bytes;
use super::{Served, is_root, lock, serve, shared_locks};
use thrufs::{Outcome, Result};
use thrufs_abi::layout::LkIn;
use thrufs_abi::{LkFlags, LockOwner};
use thrufs_hostdir::Config;
use thrufs_sys::lock::{LockKind, ofd_set};
use thrufs_tests::prelude::*;

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

/// A file that many locks are set of by a user, for reading.
struct Crowded {
    served: Served,
    node: NodeId,
    fh: u64,
}

impl Crowded {
    fn new() -> Crowded {
        let served = serve(shared_locks());
        served.write("file", b"");
        let node = served.client.root().walk("file").unwrap();
        let fh = served.client.user(1001, 1001).open(node, libc::O_RDONLY);
        let fh = fh.unwrap().fh;
        Crowded { served, node, fh }
    }

    fn range(&self, owner: u64, kind: i32, start: u64, bytes: u64) -> LkIn {
        let mut arg = lock(self.fh, owner, kind);
        (arg.lk.start, arg.lk.end) = (start, start + bytes - 1);
        arg
    }

    fn set(&self, uid: u32, range: &LkIn) -> Result<()> {
        let user = self.served.client.user(uid, uid);
        user.setlk(self.node, range, false)
    }
}

/// Each question to the kernel about a lock takes as long as the file has locks.
#[test]
fn what_one_user_locks_of_a_file_is_bounded() {
    skip_if!(!is_root());
    let file = &Crowded::new();
    let (read, unlock) = (libc::F_RDLCK, libc::F_UNLCK);
    let set = |owner, kind, number: u64, bytes| {
        let range = file.range(owner, kind, AS_THEY_ARE + number * 4, bytes);
        file.set(1001, &range)
    };
    for number in 0..3000 {
        assert_eq!(set(1, read, number, 3), Ok(()), "few at a time");
        assert_eq!(set(1, unlock, number, 3), Ok(()));
    }
    let refused = (0..3000).find(|number| set(1, read, *number, 3) != Ok(()));
    assert!(
        refused.is_some_and(|it| (1000..1025).contains(&it)),
        "{refused:?}"
    );
    for owner in [1, 2] {
        assert_eq!(set(owner, read, 5000, 3), Err(Errno::ENOLCK));
    }
    let parts = file.range(1, unlock, AS_THEY_ARE + 1, 1);
    assert_eq!(file.set(1001, &parts), Err(Errno::ENOLCK), "it splits one");
    for uid in [1002, 0] {
        let other = file.range(u64::from(uid) + 10, read, AS_THEY_ARE, 1);
        assert_eq!(file.set(uid, &other), Ok(()));
    }
    for number in 0..10 {
        assert_eq!(set(1, unlock, number, 3), Ok(()));
    }
    assert_eq!(set(2, read, 5000, 3), Ok(()));
    let everything = lock(file.fh, 1, unlock);
    assert_eq!(file.set(1001, &everything), Ok(()));
    for number in 0..1000 {
        assert_eq!(set(2, read, number, 3), Ok(()));
    }
}

/// The thread that reads requests serves others.
#[test]
fn a_request_about_a_file_with_many_locks_is_carried_out_where_it_may_sleep() {
    let file = &Crowded::new();
    let range = |kind, owner| file.range(owner, kind, AS_THEY_ARE + owner * 4, 1);
    let is_deferred = |opcode, arg: &LkIn| {
        let request = file.served.client.root().request(opcode, file.node);
        let mut reply = vec![0; 4096];
        let dispatcher = file.served.client.dispatcher();
        let request = request.arg(arg).finish();
        let outcome = dispatcher.dispatch(&request, &mut reply, false);
        matches!(outcome, Outcome::Defer(_))
    };
    let write = range(libc::F_WRLCK, 1);
    file.set(0, &range(libc::F_RDLCK, 2)).unwrap();
    assert!(!is_deferred(Opcode::Getlk, &write));
    for owner in 3..100 {
        file.set(0, &range(libc::F_RDLCK, owner)).unwrap();
    }
    assert!(is_deferred(Opcode::Getlk, &write));
    assert!(is_deferred(Opcode::Setlk, &range(libc::F_RDLCK, 1)));
    assert!(is_deferred(Opcode::Setlk, &range(libc::F_UNLCK, 2)));
}

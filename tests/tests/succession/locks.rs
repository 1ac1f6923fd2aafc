//! Locks, which two servers cannot hold at once.

use crate::ground::{Root, Session, WAYS, Way, config_for};
use thrufs_abi::LockOwner;
use thrufs_abi::layout::{FileLock, LkIn};
use thrufs_hostdir::{Migration, MigrationOnError};
use thrufs_sys::lock::{self, LockKind, RangeLock};
use thrufs_tests::prelude::*;

const FLOCK: u32 = 1;

/// Ranges from here on are locked beneath as they are, also where a file could be mapped.
const AS_THEY_ARE: u64 = 1 << 30;

fn range(fh: u64, owner: u64, kind: i32, start: u64, end: u64) -> LkIn {
    LkIn {
        fh,
        owner,
        lk: FileLock {
            start,
            end,
            kind: kind as u32,
            pid: 77,
        },
        ..LkIn::default()
    }
}

fn whole(fh: u64, owner: u64, kind: i32) -> LkIn {
    LkIn {
        lk_flags: FLOCK,
        ..range(fh, owner, kind, 0, i64::MAX as u64)
    }
}

/// Whether a range could be locked beneath.
fn is_free(path: &Path, start: u64, end: u64) -> bool {
    let file = File::options().write(true).open(path).unwrap();
    let wanted = RangeLock {
        kind: LockKind::Write,
        start,
        end,
        pid: 0,
    };
    lock::ofd_set(&file, &wanted).is_ok()
}

fn flock_is_free(path: &Path) -> bool {
    let file = File::open(path).unwrap();
    lock::flock(&file, LockKind::Write).is_ok()
}

struct Held {
    node: NodeId,
    fh: u64,
    path: PathBuf,
}

fn exactly(fh: u64, owner: u64, kind: i32, start: u64, end: u64) -> LkIn {
    range(fh, owner, kind, AS_THEY_ARE + start, AS_THEY_ARE + end)
}

fn is_exactly_free(path: &Path, start: u64, end: u64) -> bool {
    is_free(path, AS_THEY_ARE + start, AS_THEY_ARE + end)
}

fn locked(root: &Root<'_>, source: &Path) -> Held {
    let node = root.walk("file").unwrap();
    let fh = root.open(node, libc::O_RDWR).unwrap().fh;
    for lock in [
        exactly(fh, 5, libc::F_WRLCK, 0, 9),
        exactly(fh, 5, libc::F_RDLCK, 20, 29),
        range(fh, 6, libc::F_RDLCK, AS_THEY_ARE + 25, i64::MAX as u64),
        whole(fh, 9, libc::F_WRLCK),
    ] {
        root.setlk(node, &lock, false).unwrap();
    }
    Held {
        node,
        fh,
        path: source.join("file"),
    }
}

fn served(way: Way) -> Session {
    let fill = |source: &Path| fs::write(source.join("file"), "content").unwrap();
    Session::new(fill, config_for(way))
}

#[test]
fn locks_are_held_on() {
    for way in WAYS {
        let session = served(way);
        let (source, server, root) = session.parts();
        let Held { node, fh, path } = locked(&root, source);
        for round in 0..2 {
            server.passed_on(way);
            assert!(!is_exactly_free(&path, 5, 5), "{way:?} {round}");
            assert!(is_exactly_free(&path, 10, 19), "{way:?} {round}");
            assert!(!is_exactly_free(&path, 20, 24), "{way:?} {round}");
            assert!(!is_free(&path, 1 << 40, 1 << 41), "{way:?} {round}");
            assert!(!flock_is_free(&path), "{way:?} {round}");
        }
        // They have the same owners.
        let ours = exactly(fh, 5, libc::F_WRLCK, 0, 9);
        root.setlk(node, &ours, false).unwrap();
        let another = exactly(fh, 6, libc::F_WRLCK, 0, 0);
        assert_eq!(root.setlk(node, &another, false), Err(Errno::EAGAIN));
        // They are released when the client does so.
        root.flush(node, fh, LockOwner(5)).unwrap();
        assert!(is_exactly_free(&path, 0, 24), "{way:?}");
        assert!(!is_exactly_free(&path, 25, 25), "{way:?}");
        root.setlk(node, &whole(fh, 9, libc::F_UNLCK), false)
            .unwrap();
        assert!(flock_is_free(&path), "{way:?}");
        root.release(node, fh).unwrap();
        assert!(is_free(&path, 0, i64::MAX as u64), "{way:?}");
        server.wait_for_kept(0);
    }
}

/// Also when the open file is closed whose lock was the first.
#[test]
fn the_lock_of_the_mount_is_held_on() {
    for way in WAYS {
        let session = served(way);
        let (source, server, root) = session.parts();
        let path = source.join("file");
        let node = root.walk("file").unwrap();
        let open = || root.open(node, libc::O_RDWR).unwrap().fh;
        let [one, two] = [open(), open()];
        let set = |fh, owner, start| {
            let lock = range(fh, owner, libc::F_WRLCK, start, start + 9);
            root.setlk(node, &lock, false)
        };
        assert_eq!([set(one, 5, 0), set(two, 6, 20)], [Ok(()); 2]);
        for round in 0..2 {
            server.passed_on(way);
            assert!(!is_free(&path, 10, 19), "{way:?} {round}");
            assert_eq!(set(two, 6, 40), Ok(()), "{way:?} {round}");
            assert_eq!(set(two, 7, 40), Err(Errno::EAGAIN), "{way:?} {round}");
            if round == 0 {
                assert_eq!(set(two, 6, 0), Err(Errno::EAGAIN), "{way:?}");
                root.release(node, one).unwrap();
                assert_eq!(set(two, 6, 0), Ok(()), "{way:?}");
            }
        }
        root.release(node, two).unwrap();
        assert!(is_free(&path, 0, i64::MAX as u64), "{way:?}");
        server.wait_for_kept(0);
    }
}

/// The kernel above uses the number of an owner again while the RELEASE of its open file is on its way.
#[test]
fn locks_belong_to_the_open_file_by_which_their_owner_locked_last() {
    for way in WAYS {
        let session = served(way);
        let (source, server, root) = session.parts();
        let path = source.join("file");
        let node = root.walk("file").unwrap();
        let [one, two] = [(); 2].map(|()| root.open(node, libc::O_RDWR).unwrap().fh);
        for (fh, start) in [(one, 0), (two, 20)] {
            let lock = exactly(fh, 5, libc::F_WRLCK, start, start + 9);
            root.setlk(node, &lock, false).unwrap();
        }
        root.release(node, one).unwrap();
        assert!(!is_exactly_free(&path, 20, 29), "{way:?}");
        server.passed_on(way);
        assert!(!is_exactly_free(&path, 20, 29), "{way:?}");
        root.release(node, two).unwrap();
        assert!(is_exactly_free(&path, 0, 29), "{way:?}");
        server.wait_for_kept(0);
    }
}

#[test]
fn locks_are_held_while_no_server_runs() {
    let session = served(Way::Death);
    let (source, server, root) = session.parts();
    let Held { path, .. } = locked(&root, source);
    server.died_while(|| {
        assert!(
            !flock_is_free(&path)
                && !is_exactly_free(&path, 0, 0)
                && !is_exactly_free(&path, 25, 25)
        );
    });
}

#[test]
fn a_lock_that_is_taken_meanwhile_is_an_error() {
    let session = served(Way::Paths);
    let (source, server, root) = session.parts();
    let Held { node, fh, path } = locked(&root, source);
    let state = server.saved().unwrap();
    assert!(flock_is_free(&path) && is_exactly_free(&path, 0, 9));
    let thief = File::options().write(true).open(&path).unwrap();
    let stolen = RangeLock {
        kind: LockKind::Write,
        start: AS_THEY_ARE + 3,
        end: AS_THEY_ARE + 3,
        pid: 0,
    };
    lock::ofd_set(&thief, &stolen).unwrap();
    let refused = server.restored(Migration::default(), &state);
    assert!(refused.unwrap_err().to_string().contains("locks"));
    let tolerant = Migration {
        on_error: MigrationOnError::GuestError,
        ..Migration::default()
    };
    server.restored(tolerant, &state).unwrap();
    assert_eq!(root.read(node, fh, 0, 1), Err(Errno::EIO));
    assert!(root.getattr(node).is_ok());
    root.release(node, fh).unwrap();
}

#[test]
fn a_source_that_resumes_after_all_has_its_locks_again() {
    let session = served(Way::Paths);
    let (source, server, root) = session.parts();
    let Held { node, fh, path } = locked(&root, source);
    server.saved().unwrap();
    assert!(flock_is_free(&path) && is_free(&path, 0, i64::MAX as u64));
    assert_eq!(root.read(node, fh, 0, 1).unwrap(), b"c");
    assert!(
        !flock_is_free(&path) && !is_exactly_free(&path, 0, 0) && !is_exactly_free(&path, 25, 25)
    );
}

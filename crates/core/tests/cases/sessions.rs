//! Real mounts: their beginning, their end, and what happens when requests sleep.

use crate::ground::{
    Mount, can_mount, check_deferred_read, files_with, is_destroyed, is_mounted, one_reader, plain,
    refusing, serve,
};
use rustix::fs::FlockOperation;
use rustix::mount::{MountAttrFlags, UnmountFlags};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use thrufs::session::Journal;
use thrufs::{
    End, InitFlags, MountFailure, MountOptions, Opcode, Session, SessionConfig, SessionError,
};
use thrufs_sys::signal::{ThreadId, current_thread_id, interrupt_thread};
use thrufs_testing::wait_until;

#[test]
fn mount_returns_when_the_mount_answers_and_drop_unmounts() {
    let files = files_with(b"hello");
    let Some(mut mount) = Mount::new(&files, plain()) else {
        return;
    };
    assert_eq!(std::fs::read(mount.path("plain")).unwrap(), b"hello");
    let mut names: Vec<_> = std::fs::read_dir(mount.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = ["held", "locked", "other", "panics", "plain", "slow"];
    assert_eq!(names, expected);
    let error = std::fs::metadata(mount.path("absent")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    let handle = mount.session().handle();
    let features = handle.features().unwrap();
    let wanted = InitFlags::FLOCK_LOCKS | InitFlags::PARALLEL_DIROPS;
    assert!(features.flags.contains(wanted));
    let snapshot = handle.metrics();
    assert!(snapshot.operation(Opcode::Lookup).unwrap().requests() >= 2);
    assert_eq!(snapshot.operation(Opcode::Read).unwrap().bytes, 5);
    assert!(snapshot.readers + snapshot.ring_threads >= 1);
    let target = mount.session().target().to_owned();
    assert!(is_mounted(&target));
    drop(mount.session.take());
    assert!(!is_mounted(&target));
    assert!(is_destroyed(&files));
    assert!(
        files.notifier().increment_epoch().is_err(),
        "the connection has ended"
    );
}

#[test]
fn unmounting_from_outside_ends_the_session_and_frees_the_mount_point() {
    let files = files_with(b"one");
    let Some(mut mount) = Mount::new(&files, plain()) else {
        return;
    };
    rustix::mount::unmount(mount.root(), UnmountFlags::empty()).unwrap();
    let end = mount.session.take().unwrap().join().unwrap();
    assert_eq!(end, End::Unmounted);
    assert!(is_destroyed(&files));
    let second = files_with(b"two");
    let options = MountOptions::new("second");
    let session = thrufs::mount(serve(&second), mount.path(""), &options, one_reader()).unwrap();
    assert_eq!(std::fs::read(mount.path("plain")).unwrap(), b"two");
    assert_eq!(session.unmount().unwrap(), End::Unmounted);
    assert!(!is_mounted(mount.root()));
}

/// Regression: a program that looks at every mount was enough for an unmount to fail.
#[test]
fn an_unmount_waits_for_a_mount_in_use_for_half_a_second() {
    let Some(mut mount) = Mount::new(&files_with(b"used"), plain()) else {
        return;
    };
    let session = mount.session.take().unwrap();
    let used = File::open(mount.path("plain")).unwrap();
    let busy = rustix::mount::unmount(mount.root(), UnmountFlags::empty());
    assert_eq!(busy, Err(rustix::io::Errno::BUSY));
    let user = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        drop(used);
    });
    assert_eq!(session.unmount().unwrap(), End::Unmounted);
    user.join().unwrap();
}

#[test]
fn a_refusal_at_init_leaves_nothing_mounted() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let options = MountOptions::new("refused");
    let failure =
        thrufs::mount(serve(&refusing()), directory.path(), &options, one_reader()).unwrap_err();
    assert!(
        matches!(failure, MountFailure::Session(SessionError::Init(_))),
        "{failure:?}"
    );
    assert!(!is_mounted(directory.path()));
}

fn mount_line(target: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let is_it = |line: &&str| line.contains(target.to_str().unwrap());
    mounts.lines().find(is_it).expect("mounted").to_owned()
}

#[test]
fn the_helper_mounts_and_unmounts() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut options = MountOptions::new("with,comma");
    options.subtype = Some("stage".to_owned());
    let device = match thrufs::mount::mount_unprivileged(directory.path(), &options) {
        Err(thrufs::MountError::NoHelper) => {
            return thrufs_test_report::skipped("no fusermount3 here");
        }
        device => device.unwrap(),
    };
    let line = mount_line(directory.path());
    assert!(line.starts_with("with,comma "), "{line}");
    for word in [" fuse.stage ", "nosuid", "default_permissions"] {
        assert!(line.contains(word), "{word}: {line}");
    }
    let files = files_with(b"helped");
    let session = Session::new(serve(&files), device, one_reader()).unwrap();
    session.handshake().unwrap();
    let server = std::thread::spawn(move || session.run());
    let content = std::fs::read(directory.path().join("plain")).unwrap();
    assert_eq!(content, b"helped");
    thrufs::mount::unmount_unprivileged(directory.path(), false).unwrap();
    assert_eq!(server.join().unwrap().unwrap(), End::Unmounted);
    let error = thrufs::mount::unmount_unprivileged(directory.path(), false).unwrap_err();
    assert!(matches!(error, thrufs::MountError::Helper(_)), "{error:?}");
}

#[test]
fn proc_mounts_shows_the_mount_options() {
    let mut options = MountOptions::new("the source");
    options.subtype = Some("stage".to_owned());
    options.attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_NOATIME;
    options.allow_other = true;
    options.read_bytes_max = Some(65_536);
    let files = files_with(b"");
    let Some(mount) = Mount::with_options(&files, one_reader(), &options) else {
        return;
    };
    let line = mount_line(mount.root());
    assert!(line.starts_with("the\\040source "), "{line}");
    for word in [
        " fuse.stage ro,",
        "noexec",
        "noatime",
        "allow_other",
        "max_read=65536",
    ] {
        assert!(line.contains(word), "{word}: {line}");
    }
    let error = std::fs::write(mount.path("plain"), "x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS));
}

#[test]
fn bad_mount_points_are_named() {
    if !can_mount() {
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    for target in [file.path(), "/nonexistent/thrufs".as_ref()] {
        let options = MountOptions::new("nowhere");
        let files = serve(&files_with(b""));
        let failure = thrufs::mount(files, target, &options, one_reader()).unwrap_err();
        assert!(
            failure.to_string().contains(target.to_str().unwrap()),
            "{failure}"
        );
    }
}

#[test]
fn shutting_down_before_the_mount_ends_the_handshake() {
    if !can_mount() {
        return;
    }
    let (device, _) = thrufs::mount::open_device().unwrap();
    let session = Session::new(serve(&files_with(b"")), device, one_reader()).unwrap();
    let handle = session.handle();
    std::thread::scope(|scope| {
        let greeting = scope.spawn(|| session.handshake().map(drop));
        std::thread::sleep(Duration::from_millis(50));
        handle.shutdown();
        assert!(matches!(greeting.join().unwrap(), Err(SessionError::Ended)));
    });
    assert!(
        matches!(session.run(), Err(SessionError::Misuse)),
        "there was no agreement"
    );
}

#[test]
fn a_reader_that_gets_stuck_is_replaced() {
    let files = files_with(b"content");
    let Some(mount) = Mount::new(&files, one_reader()) else {
        return;
    };
    std::thread::scope(|scope| {
        let slow: Vec<_> = (0..5)
            .map(|number| {
                let path = mount.path("slow");
                let files = &files;
                let stuck = scope.spawn(move || std::fs::metadata(path).unwrap().len());
                // Each holds the only reader there is.
                files.gate.wait_for(number + 1);
                stuck
            })
            .collect();
        let start = Instant::now();
        assert_eq!(std::fs::read(mount.path("plain")).unwrap(), b"content");
        let waited = start.elapsed();
        assert!(waited < Duration::from_secs(60), "{waited:?}");
        let snapshot = mount.metrics();
        assert!(snapshot.displaced >= 5, "{snapshot}");
        assert!(snapshot.blocked >= 5, "{snapshot}");
        assert_eq!(snapshot.readers, 1, "{snapshot}");
        files.gate.open();
        for stuck in slow {
            assert_eq!(stuck.join().unwrap(), 7);
        }
    });
    wait_until("all are back", || mount.metrics().blocked == 0);
    assert_eq!(mount.metrics().readers, 1);
    assert_eq!(std::fs::read(mount.path("other")).unwrap(), b"content");
}

#[test]
fn requests_that_sleep_leave_the_reader_at_once() {
    check_deferred_read(one_reader(), |mount| {
        assert_eq!(std::fs::read(mount.path("plain")).unwrap(), b"content");
    });
}

#[test]
fn beyond_blocked_max_readers_sleep_and_no_request_is_lost() {
    let files = files_with(b"content");
    let config = SessionConfig {
        blocked_max: 1,
        ..one_reader()
    };
    let Some(mount) = Mount::new(&files, config) else {
        return;
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| std::fs::read(mount.path("held")).unwrap());
        files.gate.wait_for(1);
        // Another open file of the same node would wait for the first one's page.
        let second = scope.spawn(|| std::fs::metadata(mount.path("slow")).unwrap().len());
        files.gate.wait_for(2);
        let third = scope.spawn(|| std::fs::read(mount.path("plain")).unwrap());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!third.is_finished(), "no reader is left");
        files.gate.open();
        assert_eq!(first.join().unwrap(), b"content");
        assert_eq!(second.join().unwrap(), 7);
        assert_eq!(third.join().unwrap(), b"content");
    });
}

/// A thread that sleeps in flock(2) on the mount, and its id for signals.
fn lock(mount: &Mount) -> (std::thread::JoinHandle<rustix::io::Result<()>>, ThreadId) {
    let file = File::open(mount.path("locked")).unwrap();
    let (sender, receiver) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        sender.send(current_thread_id()).unwrap();
        rustix::fs::flock(&file, FlockOperation::LockExclusive)
    });
    (waiter, receiver.recv().unwrap())
}

/// As many lock waiters as are allowed delay no other request and are interrupted by signals.
pub fn check_lock_waiters(config: SessionConfig) {
    let files = files_with(b"content");
    let config = SessionConfig {
        lock_waiters_max: 8,
        ..config
    };
    let Some(mount) = Mount::new(&files, config) else {
        return;
    };
    let waiters: Vec<_> = (0..8).map(|_| lock(&mount)).collect();
    wait_until("all wait", || files.lock.waiting() == 8);
    let snapshot = mount.metrics();
    assert_eq!(snapshot.lock_waiters, 8, "{snapshot}");
    wait_until("no other request sleeps", || mount.metrics().blocked == 0);
    let start = Instant::now();
    assert_eq!(std::fs::read(mount.path("plain")).unwrap(), b"content");
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "other requests are not delayed"
    );
    let (refused, _) = lock(&mount);
    assert_eq!(refused.join().unwrap(), Err(rustix::io::Errno::NOLCK));
    for (waiter, thread) in waiters {
        wait_until("interrupted", || {
            let _ = interrupt_thread(thread);
            waiter.is_finished()
        });
        assert_eq!(waiter.join().unwrap(), Err(rustix::io::Errno::INTR));
    }
    wait_until("all have left", || mount.metrics().lock_waiters == 0);
    assert!(mount.metrics().interrupts >= 8);
}

#[test]
fn waits_for_locks_are_interrupted_with_their_clients() {
    check_lock_waiters(one_reader());
}

#[test]
fn shutting_down_while_busy_ends_in_time_and_leaves_no_dead_mount() {
    let files = files_with(b"content");
    let Some(mut mount) = Mount::new(&files, plain()) else {
        return;
    };
    let (waiter, _) = lock(&mount);
    let path = mount.path("held");
    let held = std::thread::spawn(move || std::fs::read(path));
    files.gate.wait_for(1);
    wait_until("it waits", || files.lock.waiting() == 1);
    let handle = mount.session().handle();
    handle.shutdown();
    assert_eq!(waiter.join().unwrap(), Err(rustix::io::Errno::NOTCONN));
    assert!(!held.is_finished(), "a request in progress is given time");
    files.gate.open();
    let session = mount.session.take().unwrap();
    assert_eq!(session.join().unwrap(), End::ShutDown);
    assert_eq!(held.join().unwrap().unwrap(), b"content");
    assert!(!is_mounted(mount.root()));
    assert!(is_destroyed(&files));
}

#[test]
fn the_end_waits_for_drain_timeout_at_most() {
    let files = files_with(b"content");
    let config = SessionConfig {
        drain_timeout: Duration::from_millis(200),
        ..plain()
    };
    let Some(mut mount) = Mount::new(&files, config) else {
        return;
    };
    let path = mount.path("held");
    let held = std::thread::spawn(move || std::fs::read(path));
    files.gate.wait_for(1);
    mount.session().handle().shutdown();
    let ended = mount.session.take().unwrap().join();
    // The thread that has the request, and over io_uring the one that would send the reply.
    assert!(
        matches!(ended, Err(SessionError::Stuck(1 | 2))),
        "{ended:?}"
    );
    assert!(!is_destroyed(&files), "a request is in progress");
    assert!(!is_mounted(mount.root()));
    assert!(
        held.join().unwrap().is_err(),
        "the client is not left waiting"
    );
    files.gate.open();
}

#[test]
fn a_connection_that_is_mounted_nowhere_can_be_aborted() {
    let files = files_with(b"content");
    let Some(mut mount) = Mount::new(&files, plain()) else {
        return;
    };
    let connection = rustix::fs::minor(rustix::fs::stat(mount.root()).unwrap().st_dev);
    let path = mount.path("held");
    let held = std::thread::spawn(move || std::fs::read(path));
    files.gate.wait_for(1);
    rustix::mount::unmount(mount.root(), UnmountFlags::DETACH).unwrap();
    thrufs::mount::abort_connection(connection).unwrap();
    // Before it is answered.
    assert!(held.join().unwrap().is_err());
    files.gate.open();
    let ended = mount.session.take().unwrap().join();
    assert_eq!(ended.unwrap(), End::Aborted);
    // Its own number may be another mount's by now.
    let error = thrufs::mount::abort_connection(u32::MAX).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

/// A process that goes on with the session sends the same answer if the kernel asks again.
#[test]
fn answers_to_opens_are_in_the_journal() {
    const BYTES: u64 = 32;
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (device, _) = thrufs::mount::open_device().unwrap();
    let journal = Journal::new().unwrap();
    let files = Arc::new(serve(&files_with(b"content")));
    let session = Session::journaled(files, device, one_reader(), None, journal.clone()).unwrap();
    std::thread::scope(|scope| {
        let greeting = scope.spawn(|| session.handshake().map(drop));
        let options = MountOptions::new("files");
        thrufs::mount::mount(session.device(), directory.path(), &options).unwrap();
        greeting.join().unwrap().unwrap();
    });
    let server = std::thread::spawn(move || session.run());
    // Its length, and the header of the answer, which begins with it.
    let has_answer = || {
        let mut bytes = vec![0; 1 << 18];
        let length = rustix::io::pread(&journal, &mut bytes, 0).unwrap();
        let (words, _) = bytes[..length].as_chunks();
        let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        words.windows(2).any(|pair| pair == [BYTES; 2])
    };
    assert!(!has_answer());
    let open = File::open(directory.path().join("plain")).unwrap();
    assert!(has_answer());
    drop(open);
    thrufs::mount::unmount(directory.path(), true).unwrap();
    assert_eq!(server.join().unwrap().unwrap(), End::Unmounted);
}

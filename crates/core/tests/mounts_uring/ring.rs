//! io_uring only: requests that sleep while others of their queue are served, and the session's end.

use crate::cases::sessions::check_lock_waiters;
use crate::ground::{self, Mount, can_mount, check_deferred_read, files_with, is_mounted, plain};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use thrufs::{Carrier, MountOptions, Session, SessionConfig, UringConfig};

/// A request that waits for a held one waits longer; on a busy machine no other does.
const PATIENCE: Duration = Duration::from_secs(60);

/// Binds the calling thread, and those that it starts, to one CPU: their requests share a queue.
fn stay_on_one_cpu() {
    let allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU)
        .find(|cpu| allowed.is_set(*cpu))
        .unwrap();
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(None, &one).unwrap();
}

/// Sends a request that no cache answers.
fn ask(mount: &Mount, number: usize) {
    let missing = mount.path(&format!("missing-{number}"));
    assert!(std::fs::symlink_metadata(missing).is_err());
}

#[test]
fn stuck_requests_do_not_delay_others_of_their_queue() {
    let files = files_with(b"content");
    let Some(mount) = Mount::new(&files, plain()) else {
        return;
    };
    stay_on_one_cpu();
    let slow: PathBuf = mount.path("slow");
    std::thread::scope(|scope| {
        for number in 1..=5 {
            let stuck = scope.spawn(|| std::fs::metadata(&slow).unwrap().len());
            files.gate.wait_for(number);
            // From the second on no thread serves the queue, until the monitor starts another.
            let (mount, begun) = (&mount, Instant::now());
            let asking = scope.spawn(move || ask(mount, number));
            while !asking.is_finished() && begun.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(1));
            }
            let is_well = asking.is_finished() && !stuck.is_finished();
            if !is_well {
                files.gate.open();
            }
            assert!(is_well, "{number} that are stuck keep others waiting");
        }
        files.gate.open();
    });
}

#[test]
fn deferred_requests_leave_their_queue_at_once() {
    stay_on_one_cpu();
    check_deferred_read(plain(), |mount| {
        for number in 0..100 {
            ask(mount, number);
        }
    });
}

/// Also more of them than their queue has slots.
#[test]
fn waits_for_locks_do_not_delay_others_and_are_interrupted() {
    stay_on_one_cpu();
    for depth in [None, NonZeroU16::new(1), NonZeroU16::new(3)] {
        let ring = UringConfig {
            depth,
            ..UringConfig::default()
        };
        check_lock_waiters(SessionConfig { ring, ..plain() });
    }
}

#[test]
fn threads_serve_queues_per_thread_queues() {
    let depth = NonZeroU16::new(3);
    for queues_per_thread in [1, 2, 1000] {
        let ring = UringConfig {
            queues_per_thread: NonZeroUsize::new(queues_per_thread),
            depth,
        };
        let config = SessionConfig { ring, ..plain() };
        let files = files_with(b"content");
        let Some(mount) = Mount::new(&files, config) else {
            return;
        };
        let handle = mount.session().handle();
        let Some(Carrier::Uring {
            threads,
            queues,
            depth: 3,
        }) = handle.carrier()
        else {
            panic!("{:?}", handle.carrier());
        };
        // Each queue has two threads, because requests of this file system may sleep.
        let allowed = sched_getaffinity(None).unwrap().count() as usize;
        assert_eq!(*threads, 2 * allowed.div_ceil(queues_per_thread));
        assert!(*queues >= allowed);
        std::thread::scope(|scope| {
            for client in 0..8 {
                let mount = &mount;
                scope.spawn(move || {
                    for number in 0..200 {
                        ask(mount, client * 1000 + number);
                        assert_eq!(std::fs::read(mount.path("plain")).unwrap(), b"content");
                    }
                });
            }
        });
    }
}

#[test]
fn a_session_that_is_never_run_ends_its_threads() {
    let files = files_with(b"content");
    // Skips where there is no ring.
    if Mount::new(&files, plain()).is_none() || !can_mount() {
        return;
    }
    let files = files_with(b"content");
    let directory = Place(tempfile::tempdir().unwrap());
    let (device, _) = thrufs::mount::open_device().unwrap();
    let session = Session::new(ground::serve(&files), device, plain()).unwrap();
    std::thread::scope(|scope| {
        let greeted = scope.spawn(|| session.handshake().map(drop));
        let options = MountOptions::new("stage");
        thrufs::mount::mount(session.device(), directory.path(), &options).unwrap();
        greeted.join().unwrap().unwrap();
    });
    assert!(std::fs::read(directory.path().join("plain")).is_ok());
    let handle = session.handle();
    assert!(handle.metrics().ring_threads > 0);
    drop(session);
    assert_eq!(handle.metrics().ring_threads, 0, "they have left");
    let dead = std::fs::read_dir(directory.path()).unwrap_err();
    // The connection ends a moment after its threads; a request in between gets the ring's error.
    let over = [libc::ENOTCONN, libc::ECONNABORTED, libc::ECANCELED];
    assert!(over.contains(&dead.raw_os_error().unwrap()), "{dead}");
    thrufs::mount::unmount(directory.path(), true).unwrap();
    assert!(!is_mounted(directory.path()));
}

/// A mount point that is unmounted when the test ends or fails.
struct Place(tempfile::TempDir);

impl Place {
    fn path(&self) -> &std::path::Path {
        self.0.path()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if is_mounted(self.path()) {
            let _ = thrufs::mount::unmount(self.path(), true);
        }
    }
}

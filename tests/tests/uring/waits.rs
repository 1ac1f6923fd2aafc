//! A caller that waits for a lock delays no other, and can be interrupted.

use std::fs::File;
use std::time::{Duration, Instant};
use thrufs_tests::guard::AbortOnPanic;

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use thrufs_testing::process::Process;
use thrufs_tests::connection::Connection;
use thrufs_tests::lower::Lower;
use thrufs_tests::machine::{cpus, on_cpu};
use thrufs_tests::programs;
use thrufs_tests::server::kill_process;
use thrufs_tests::transport::must_skip_ring;
use thrufs_tests::wait_until;

use crate::load::{own_cpus, serve, serve_alone};

/// More than a queue has memory for at once.
const WAITERS: usize = 24;

/// A hundred requests without delay take a fraction of it; delayed ones never end.
const PROMPT_MAX: Duration = Duration::from_secs(60);

/// EINTR, as the helper prints it.
const INTERRUPTED: &str = "errno 4";

fn waiters_delay_no_other(options: &str, owner: &str) {
    let (ground, server) = serve(Lower::Tmpfs, options);
    let path = ground.mnt().join("file");
    std::fs::write(&path, "x").unwrap();
    let path = path.to_str().unwrap();
    let lock = ["lock-hold", owner, "write", path, "0", "0"];
    let cpu = cpus()[0];
    let (holder, waiters, _abort);
    holder = programs::start_helper(&lock);
    assert_eq!(
        (holder.line(), holder.line()),
        ("waiting".into(), "ok".into())
    );
    waiters = (0..WAITERS)
        .map(|_| on_cpu(cpu, || programs::start_helper(&lock)))
        .collect::<Vec<_>>();
    _abort = AbortOnPanic(Connection::of(ground.mnt()));
    for waiter in &waiters {
        assert_eq!(waiter.line(), "waiting");
    }
    assert_eq!(waiters[0].line_within(Duration::from_millis(200)), None);

    let others = vec![path; 100];
    let took = on_cpu(cpu, || {
        let start = Instant::now();
        for path in others {
            std::fs::symlink_metadata(path).unwrap();
        }
        start.elapsed()
    });
    assert!(took < PROMPT_MAX, "held up by waiters for {took:?}");

    let (interrupted, patient) = waiters.split_at(WAITERS / 2);
    for waiter in interrupted {
        waiter.signal(Signal::USR1);
    }
    for waiter in interrupted {
        assert_eq!(waiter.line(), INTERRUPTED);
    }
    holder.finish();
    // One after the other, each as soon as the one before has ended.
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut left: Vec<&Process> = patient.iter().collect();
    while !left.is_empty() {
        assert!(Instant::now() < deadline, "{} still wait", left.len());
        left.retain(
            |waiter| match waiter.line_within(Duration::from_millis(5)) {
                Some(line) => {
                    assert_eq!(line, "ok");
                    waiter.signal(Signal::TERM);
                    false
                }
                None => true,
            },
        );
    }
    drop(waiters);
    server.stop();
}

#[test]
fn waiters_for_shared_locks_delay_no_other_request() {
    if !must_skip_ring() {
        waiters_delay_no_other("locks=shared,cache=never", "flock");
        waiters_delay_no_other("locks=shared,cache=never", "process");
    }
}

#[test]
fn waiters_for_shared_locks_at_depth_one_delay_no_other_request() {
    if !must_skip_ring() {
        waiters_delay_no_other("locks=shared,cache=never,ring_depth=1", "process");
    }
}

/// The kernel hands over a request that finds all slots of its queue taken with the next reply. There is none when
/// those slots have waits for a lock.
#[test]
fn a_request_behind_waiters_that_have_come_at_once_is_answered() {
    if must_skip_ring() {
        return;
    }
    // No other test starts a process meanwhile: it would close the files of this one, and wait for the server.
    let _alone = own_cpus();
    let (ground, server) = serve_alone(Lower::Tmpfs, "locks=shared,cache=never,ring_depth=2");
    let path = ground.mnt().join("file");
    std::fs::write(&path, "x").unwrap();
    let open = || File::open(&path).unwrap();
    let (holder, first, second) = (open(), open(), open());
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    let connection = Connection::of(ground.mnt());
    let cpu = cpus()[0];
    kill_process(server.worker(), Signal::STOP);
    std::thread::scope(|scope| {
        let abort = AbortOnPanic(Connection::of(ground.mnt()));
        let waiters = [&first, &second].map(|file| {
            scope.spawn(move || on_cpu(cpu, || flock(file, FlockOperation::LockExclusive)))
        });
        wait_until("two requests", || connection.waiting() == 2);
        let other = scope.spawn(|| on_cpu(cpu, || std::fs::symlink_metadata(&path)));
        wait_until("three requests", || connection.waiting() == 3);
        kill_process(server.worker(), Signal::CONT);
        wait_until("an answer", || other.is_finished());
        assert!(!waiters[0].is_finished() && !waiters[1].is_finished());
        flock(&holder, FlockOperation::Unlock).unwrap();
        drop(abort);
        // One after the other: each file is closed once it is locked.
        wait_until("a lock", || {
            waiters
                .iter()
                .any(std::thread::ScopedJoinHandle::is_finished)
        });
        for file in [&first, &second] {
            let _ = flock(file, FlockOperation::Unlock);
        }
    });
    drop((holder, first, second));
    server.stop();
}

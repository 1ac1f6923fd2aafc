//! A caller that waits for a lock delays no other, and can be interrupted.

use std::time::{Duration, Instant};
use thrufs_tests::guard::AbortOnPanic;

use rustix::process::Signal;
use thrufs_testing::process::Process;
use thrufs_tests::connection::Connection;
use thrufs_tests::lower::Lower;
use thrufs_tests::machine::{cpus, on_cpu};
use thrufs_tests::programs;
use thrufs_tests::server::kill_process;
use thrufs_tests::transport::must_skip_ring;
use thrufs_tests::wait_until;

use crate::load::serve;

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
    let (ground, server) = serve(Lower::Tmpfs, "locks=shared,cache=never,ring_depth=2");
    let gate = ground.outside().join("gate");
    let path = ground.mnt().join("file");
    for file in [&gate, &path] {
        std::fs::write(file, "x").unwrap();
    }
    let (gate, path) = (gate.to_str().unwrap(), path.to_str().unwrap());
    let hold = |file| {
        let holder = programs::start_helper(&["lock-hold", "process", "write", file, "0", "0"]);
        assert_eq!(
            (holder.line(), holder.line()),
            ("waiting".into(), "ok".into())
        );
        holder
    };
    let (closed, holder) = (hold(gate), hold(path));
    let cpu = cpus()[0];
    // Open files are those of other processes: closing one, as whoever starts a process meanwhile does with its
    // copy of ours, would wait for the server that is stopped.
    let wait = ["lock-two", "process", "read", gate, "0", "0", path];
    let waiters = [0, 1].map(|_| on_cpu(cpu, || programs::start_helper(&wait)));
    for waiter in &waiters {
        assert_eq!(waiter.line(), "waiting");
    }
    let connection = Connection::of(ground.mnt());
    let _abort = AbortOnPanic(Connection::of(ground.mnt()));
    kill_process(server.worker(), Signal::STOP);
    closed.finish();
    wait_until("two requests", || connection.waiting() == 2);
    let other = std::thread::spawn({
        let path = path.to_owned();
        move || on_cpu(cpu, || std::fs::symlink_metadata(path))
    });
    wait_until("three requests", || connection.waiting() == 3);
    kill_process(server.worker(), Signal::CONT);
    wait_until("an answer", || other.is_finished());
    holder.finish();
    for waiter in waiters {
        let lines = [(); 3].map(|()| waiter.line());
        assert_eq!(lines, ["ok", "waiting", "ok"]);
        waiter.finish();
    }
    server.stop();
}

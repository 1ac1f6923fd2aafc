//! A caller that waits for a lock delays no other.

use crate::load::serve;
use thrufs_tests::connection::AbortOnPanic;
use thrufs_tests::connection::Connection;
use thrufs_tests::prelude::*;

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
        fs::write(file, "x").unwrap();
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
    let other = thread::spawn({
        let path = path.to_owned();
        move || on_cpu(cpu, || fs::symlink_metadata(path))
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

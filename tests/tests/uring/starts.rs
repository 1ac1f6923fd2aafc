//! The start of a mount. Another process than the server makes it, and the kernel takes no entry of a ring
//! before that one has gone on, which on busy CPUs it often has not.

use crate::load::Load;
use thrufs_tests::prelude::*;

const OPTIONS: &str = "transport=uring";

/// What happens in one of five starts is all but certain to show.
const TURNS: usize = 20;

/// With busy CPUs, which takes longer.
const BUSY_TURNS: usize = 5;

/// Asserts that neither this start nor one before on the same ground logged a warning.
#[track_caller]
fn expect_no_warning(server: &Server, turn: usize) {
    let log = server.log_text();
    let is_warning = |line: &&str| line.contains("WARN") || line.contains("ERROR");
    assert_eq!(log.lines().find(is_warning), None, "in turn {turn}");
}

#[test]
fn a_start_on_one_cpu_logs_no_warning() {
    skip_if!(must_skip_ring());
    let ground = Ground::prepare(Lower::Default).unwrap();
    for turn in 0..TURNS {
        let server = on_cpu(cpus()[0], || Server::start(&ground, OPTIONS, None));
        expect_no_warning(&server, turn);
        server.stop();
    }
}

#[test]
#[ignore = "soak: keeps all CPUs of the machine busy"]
fn the_first_requests_on_busy_cpus_are_answered() {
    skip_if!(must_skip_ring());
    while_repeating(cpus().iter().map(|_| std::hint::spin_loop), || {
        for turn in 0..BUSY_TURNS {
            let ground = Ground::prepare(Lower::Tmpfs).unwrap();
            let server = Server::start(&ground, OPTIONS, None);
            let mut load = Load::start(&ground, "load", 0);
            load.wait_for_progress();
            load.kill();
            expect_no_warning(&server, turn);
            server.stop();
        }
    });
}

//! Without a ring, `/dev/fuse` serves, and one line of the log says why.

use rustix::fs::flock;
use thrufs_tests::fence::seccomp;
use thrufs_tests::machine::Changed;
use thrufs_tests::prelude::*;
use thrufs_tests::transport::{SWITCH, has_ring, hold_switch, prove};

const OPTIONS: &str = "transport=uring";

/// Checks that the mount works without a ring, and that the log names `reason` once.
fn works_without_ring(ground: &Ground, server: Server, reason: &str) {
    assert!(!has_ring(server.worker()), "it has a ring");
    assert!(prove(OPTIONS, server.pid()).is_err());
    let file = ground.mnt().join("file");
    fs::write(&file, "content").unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "content");
    fs::remove_file(&file).unwrap();
    // The log comes through the supervisor.
    wait_until("the reason", || server.log_text().contains("no io_uring"));
    let log = server.log_text();
    let lines = log.lines().filter(|line| line.contains("no io_uring"));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains(reason), "\"{reason}\" in: {}", lines[0]);
    server.stop();
}

#[test]
#[ignore = "soak: turns io_uring off for the whole machine"]
fn with_the_kernels_switch_off_it_serves_by_dev_fuse() {
    skip_if!(must_skip_ring());
    let ground = Ground::prepare(Lower::Tmpfs).unwrap();
    let server = {
        let lock = File::open(SWITCH).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        let _off = Changed::to(Path::new(SWITCH), "N").unwrap();
        Server::start_unproved(&ground, OPTIONS, None)
    };
    works_without_ring(&ground, server, "the kernel does not offer it");
}

#[test]
fn where_rings_are_forbidden_it_serves_by_dev_fuse() {
    skip_if!(must_skip_ring());
    // A thread of its own, because the filter stays.
    let ended = thread::spawn(|| {
        seccomp::take_away(&[libc::SYS_io_uring_setup]).unwrap();
        let ground = Ground::prepare(Lower::Tmpfs).unwrap();
        let server = {
            let _switch = hold_switch(OPTIONS).unwrap();
            Server::start_unproved(&ground, OPTIONS, None)
        };
        works_without_ring(&ground, server, "may not use io_uring");
    });
    ended.join().unwrap();
}

#[test]
fn with_few_descriptors_it_serves_over_some_transport() {
    skip_if!(must_skip_ring());
    let mut without = 0;
    // From the need of /dev/fuse, two for each processor's reader and four for following, to more
    // than rings take. The worker inherits no descriptor of whoever starts this test.
    let least = 20 + 2 * cpus().len() as u32;
    for files_max in [0, 4, 8, 12, 20, 44].map(|more| least + more) {
        eprintln!("{files_max} descriptors");
        let ground = Ground::prepare(Lower::Tmpfs).unwrap();
        let server = {
            let _switch = hold_switch(OPTIONS).unwrap();
            Server::start_unproved(&ground, OPTIONS, Some(files_max))
        };
        if has_ring(server.worker()) {
            let names: Vec<_> = (0..8).map(|number| format!("file-{number}")).collect();
            let open = |name| File::create(ground.mnt().join(name)).unwrap();
            let files: Vec<_> = names.iter().map(open).collect();
            drop(files);
            server.stop();
        } else {
            works_without_ring(&ground, server, "cannot create a ring");
            without += 1;
        }
    }
    assert!(without > 0, "the rings took nothing");
}

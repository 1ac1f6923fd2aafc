//! Ends of the mount while callers on every CPU are busy in it.

use crate::load::{Load, serve};
use rustix::io::Errno;
use rustix::mount::unmount;
use thrufs_tests::connection::Connection;
use thrufs_tests::prelude::*;
use thrufs_tests::server::END_TIMEOUT;

const RETRY_INTERVAL: Duration = Duration::from_micros(300);

/// Unmounts as soon as nothing is open.
fn unmount_in_a_pause(ground: &Ground) {
    let deadline = Instant::now() + END_TIMEOUT;
    loop {
        match unmount(ground.mnt(), UnmountFlags::empty()) {
            Ok(()) => return,
            Err(Errno::BUSY) if Instant::now() < deadline => thread::sleep(RETRY_INTERVAL),
            Err(error) => panic!("unmounting: {error}"),
        }
    }
}

/// A mount without a server answers ENOTCONN until it is unmounted.
#[track_caller]
fn take_dead_away(ground: &Ground) {
    assert_eq!(rustix::fs::statfs(ground.mnt()).err(), Some(Errno::NOTCONN));
    unmount(ground.mnt(), UnmountFlags::DETACH).unwrap();
}

#[track_caller]
fn expect_success(mut server: Server) {
    let status = server.ended_within(END_TIMEOUT);
    let status = status.expect("the server ends with its mount");
    assert!(status.success(), "{status}");
}

#[test]
fn unmounting_between_requests_releases_all_callers() {
    skip_if!(must_skip_ring());
    let (ground, server) = serve(Lower::Tmpfs, "");
    // In each round, nothing is held for a while.
    let mut load = Load::start(&ground, "load", 3000);
    load.wait_for_progress();
    unmount_in_a_pause(&ground);
    load.expect_ends();
    expect_success(server);
}

#[test]
fn a_lazy_unmount_serves_those_inside_to_their_end() {
    skip_if!(must_skip_ring());
    let (ground, mut server) = serve(Lower::Tmpfs, "");
    let mut load = Load::start(&ground, "load-inside", 0);
    load.wait_for_progress();
    unmount(ground.mnt(), UnmountFlags::DETACH).unwrap();
    assert!(!is_mounted(ground.mnt()));
    load.listen();
    load.wait_for_progress();
    let early = server.ended_within(Duration::from_millis(200));
    assert_eq!(early, None, "a process is still inside");
    load.kill();
    expect_success(server);
}

#[test]
fn an_aborted_connection_releases_all_callers() {
    skip_if!(must_skip_ring());
    for lower in [Lower::Tmpfs, Lower::Ext4] {
        let (ground, mut server) = serve(lower, "");
        let mut load = Load::start_with_writers(&ground);
        load.wait_for_progress();
        Connection::of(ground.mnt()).abort();
        load.expect_ends();
        assert!(server.ended_within(END_TIMEOUT).is_some(), "it ends");
        take_dead_away(&ground);
        load.check_written(ground.source());
    }
}

//! What is counted at a floor, of which it is known what it does.

use crate::mounted::{Mounted, each, lstat, skipped};
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::path::Path;
use thrufs_bench::counting::Running;
use thrufs_bench::results::Counts;

const RING: &str = "/sys/module/fuse/parameters/enable_uring";

fn count(mounted: &Mounted, operations: u64, work: impl FnOnce()) -> Option<Counts> {
    let servers = [mounted.server()];
    let counting = match Running::start(&mounted.point(), &servers) {
        Ok(counting) => counting,
        Err(why) => {
            skipped(&why);
            return None;
        }
    };
    work();
    Some(counting.stop(operations).unwrap())
}

/// Exact, unless another process makes the kernel forget names meanwhile (`drop_caches`): then once more.
fn exactly(body: fn()) {
    for _ in 0..20 {
        if std::panic::catch_unwind(body).is_ok() {
            return;
        }
    }
    body();
}

/// Keeps the kernel from forgetting their names.
fn hold(mounted: &Mounted, count: u32) -> Vec<std::os::fd::OwnedFd> {
    let held = std::cell::RefCell::new(Vec::new());
    let open = |path: &Path| rustix::fs::open(path, OFlags::PATH, Mode::empty()).unwrap();
    each(mounted, count, |path| held.borrow_mut().push(open(path)))();
    held.into_inner()
}

fn requests(counts: &Counts) -> Vec<(&str, u64)> {
    let requests = counts.requests.as_ref().unwrap();
    requests
        .iter()
        .map(|(name, count)| (name.as_str(), *count))
        .collect()
}

fn open_and_close(path: &Path) {
    drop(File::open(path).unwrap());
}

#[test]
fn the_floor_makes_two_system_calls_for_a_request() {
    exactly(|| {
        let Some(mounted) = Mounted::start("dev") else {
            return;
        };
        let Some(cold) = count(&mounted, 100, each(&mounted, 100, lstat)) else {
            return;
        };
        assert_eq!(requests(&cold), [("LOOKUP", 100)]);
        assert_eq!(cold.system_calls, Some(200));
        // RELEASE has no waiter: the test waits for it.
        let _held = hold(&mounted, 100);
        let opened = count(&mounted, 100, each(&mounted, 100, open_and_close)).unwrap();
        assert_eq!(requests(&opened), [("OPEN", 100), ("RELEASE", 100)]);
        assert_eq!(opened.system_calls, Some(400));
    });
}

#[test]
fn requests_are_counted_over_the_ring() {
    exactly(|| {
        if fs::read_to_string(RING).is_ok_and(|value| value.trim() != "Y") {
            return skipped("FUSE over io_uring is switched off");
        }
        let Some(mounted) = Mounted::start("uring") else {
            return;
        };
        let Some(cold) = count(&mounted, 100, each(&mounted, 100, lstat)) else {
            return;
        };
        assert_eq!(requests(&cold), [("LOOKUP", 100)]);
        let _held = hold(&mounted, 100);
        let opened = count(&mounted, 100, each(&mounted, 100, open_and_close)).unwrap();
        assert_eq!(requests(&opened), [("OPEN", 100), ("RELEASE", 100)]);
        assert!(opened.system_calls.unwrap() <= 400, "{opened:?}");
    });
}

#[test]
fn others_requests_are_not_counted_and_a_mount_s_server_is_found() {
    exactly(|| {
        let (Some(mine), Some(other)) = (Mounted::start("dev"), Mounted::start("dev")) else {
            return;
        };
        let Some(counts) = count(&mine, 1, each(&other, 10, lstat)) else {
            return;
        };
        assert_eq!((requests(&counts), counts.system_calls), (vec![], Some(0)));
        let counting = Running::start(&mine.point(), &[]).unwrap();
        each(&mine, 10, lstat)();
        let counts = counting.stop(10).unwrap();
        assert_eq!(
            (requests(&counts), counts.system_calls),
            (vec![("LOOKUP", 10)], Some(20))
        );
    });
}

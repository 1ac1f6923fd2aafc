use super::{Connection, Counting, numbers, servers};
use crate::mounted::{Mounted, each, lstat, skipped};
use crate::results::Counts;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, statx};
use std::fs::{self, File};
use std::path::Path;

const RING: &str = "/sys/module/fuse/parameters/enable_uring";

fn count(mounted: &Mounted, operations: u64, work: impl FnOnce()) -> Option<Counts> {
    let servers = [mounted.server()];
    let counting = match Counting::start(&mounted.point(), &servers) {
        Ok(counting) => counting,
        Err(why) => {
            skipped(&why);
            return None;
        }
    };
    work();
    Some(counting.stop(operations).unwrap())
}

/// Exact, unless somebody else makes the kernel forget names meanwhile (`drop_caches`): then once more.
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

/// Asks the server, whatever is remembered.
fn ask(path: &Path) {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    statx(CWD, path, flags, StatxFlags::BASIC_STATS).unwrap();
}

fn open_and_close(path: &Path) {
    drop(File::open(path).unwrap());
}

#[test]
fn a_warm_stat_costs_nothing_and_a_cold_one_a_lookup() {
    exactly(|| {
        let Some(mounted) = Mounted::start(&["serve", "slow:LINK=0"]) else {
            return;
        };
        for number in 0..64 {
            fs::write(mounted.source().join(format!("file-{number}")), "").unwrap();
        }
        let Some(cold) = count(&mounted, 64, each(&mounted, 64, lstat)) else {
            return;
        };
        assert_eq!(requests(&cold), [("LOOKUP", 64)]);
        assert_eq!(cold.operations, 64);
        let _held = hold(&mounted, 64);
        let warm = count(&mounted, 64, each(&mounted, 64, lstat)).unwrap();
        assert_eq!((requests(&warm), warm.system_calls), (vec![], Some(0)));
        let asked = count(&mounted, 64, each(&mounted, 64, ask)).unwrap();
        assert_eq!(requests(&asked), [("GETATTR", 64)]);
        // Taking the request, doing it, answering; whatever wakes its threads comes on top.
        assert!(asked.system_calls.unwrap() >= 3 * 64, "{asked:?}");
    });
}

#[test]
fn the_floor_makes_two_system_calls_for_a_request() {
    exactly(|| {
        let Some(mounted) = Mounted::start(&["floor", "dev", "0"]) else {
            return;
        };
        let Some(cold) = count(&mounted, 100, each(&mounted, 100, lstat)) else {
            return;
        };
        assert_eq!(requests(&cold), [("LOOKUP", 100)]);
        assert_eq!(cold.system_calls, Some(200));
        // RELEASE, which nobody waits for, is waited for here.
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
        let Some(mounted) = Mounted::start(&["floor", "uring", "0"]) else {
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
fn others_requests_are_not_counted_and_their_servers_are_found() {
    exactly(|| {
        let (Some(mine), Some(other)) = (
            Mounted::start(&["floor", "dev", "0"]),
            Mounted::start(&["floor", "dev", "0"]),
        ) else {
            return;
        };
        let servers = servers::of_connection(Connection::of(&mine.point()).unwrap());
        // The test program has not opened it.
        assert_eq!(servers, [mine.server()]);
        let Some(counts) = count(&mine, 1, each(&other, 10, lstat)) else {
            return;
        };
        assert_eq!((requests(&counts), counts.system_calls), (vec![], Some(0)));
        let Ok(counting) = Counting::start(&mine.point(), &[]) else {
            return;
        };
        each(&mine, 10, lstat)();
        let counts = counting.stop(10).unwrap();
        assert_eq!(
            (requests(&counts), counts.system_calls),
            (vec![("LOOKUP", 10)], None)
        );
    });
}

#[test]
fn what_is_not_served_here_has_no_servers() {
    let directory = tempfile::tempdir().unwrap();
    let connection = Connection::of(directory.path()).unwrap();
    assert_eq!(servers::of_connection(connection), []);
    assert!(Connection::of(&directory.path().join("none")).is_err());
}

#[test]
fn lists_of_processors_are_understood() {
    assert_eq!(numbers("0-3,6,8-9"), Some(vec![0, 1, 2, 3, 6, 8, 9]));
    assert_eq!(numbers("0"), Some(vec![0]));
    assert_eq!(numbers("all"), None);
}

//! The reads and writes of a queue's thread per request: that of the file, and one to notify the guest. It
//! reads no eventfd and copies no data.

use crate::ground::{Guest, end};
use crate::still::{self, Counts};
use thrufs::{Errno, Opcode, Result};

/// Read and write system calls of the calling thread so far.
fn calls() -> Result<(u64, u64)> {
    let of = |name: &str| -> Option<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/io").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    of("syscr:").zip(of("syscw:")).ok_or(Errno::ENODATA)
}

/// The most reads and writes per call of `each`, less those of asking for the counters. A polling guest
/// sees a reply before its notification, which is omitted then.
fn cost(counts: &Counts, guest: &mut Guest, mut each: impl FnMut(&mut Guest)) -> (u64, u64) {
    const TIMES: u64 = 50;
    let first = counts.of(guest).unwrap();
    let before = counts.of(guest).unwrap();
    for _ in 0..TIMES {
        each(guest);
    }
    let after = counts.of(guest).unwrap();
    let each = |first: u64, before: u64, after: u64| {
        let sum = (after - before).saturating_sub(before - first);
        sum.div_ceil(TIMES)
    };
    (
        each(first.0, before.0, after.0),
        each(first.1, before.1, after.1),
    )
}

#[test]
fn a_request_costs_one_call_for_the_file_and_one_to_notify() {
    let _alone = crate::alone();
    let (serving, mut guest, counts) = still::begin(calls);
    if counts.of(&mut guest).is_err() {
        return thrufs_test_report::skipped("the kernel does not count system calls");
    }
    let lookup = cost(&counts, &mut guest, |guest| {
        let request = guest.request(Opcode::Lookup, 1).name(b"a name");
        guest.tell_any(request);
    });
    assert!(lookup.0 == 0 && lookup.1 <= 1, "LOOKUP: {lookup:?}");
    // Of many pieces: one system call, not one for each.
    let read = cost(&counts, &mut guest, |guest| {
        let request = guest.read_request(2, 0, 0, 90_000);
        assert_eq!(guest.transact(1, &request, 90_016).len(), 90_016);
    });
    assert!(read.0 == 1 && read.1 <= 1, "READ: {read:?}");
    let write = cost(&counts, &mut guest, |guest| {
        let request = guest.write_request(2, 0, 0, &[1; 90_000]).finish();
        assert_eq!(guest.transact(1, &request, 100).len(), 24);
    });
    assert!(write.0 == 0 && write.1 <= 2, "WRITE: {write:?}");
    end(serving, guest);
}

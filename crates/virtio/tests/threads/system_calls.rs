//! The reads and writes of a queue's thread per request: that of the file, and one to notify the guest. It
//! reads no eventfd and copies no data.

use crate::ground::{ALL_FEATURES, Guest, end, serve};
use crate::still::{self, Still};
use thrufs::{Errno, Opcode, Result};
use thrufs_abi::layout::{AttrOut, GetattrIn, ReadIn, WriteIn};
use thrufs_virtio::DeviceConfig;

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
fn cost(guest: &mut Guest, mut each: impl FnMut(&mut Guest)) -> (u64, u64) {
    const TIMES: u64 = 50;
    let first = still::counts(guest).unwrap();
    let before = still::counts(guest).unwrap();
    for _ in 0..TIMES {
        each(guest);
    }
    let after = still::counts(guest).unwrap();
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
    let make = || Still::make(calls);
    let (_, serving, mut guest) = serve(make, DeviceConfig::default(), ALL_FEATURES);
    guest.init().unwrap();
    if still::counts(&mut guest).is_err() {
        return thrufs_test_report::skipped("the kernel does not count system calls");
    }
    let getattr = cost(&mut guest, |guest| {
        let request = guest.request(Opcode::Getattr, 2);
        let _: AttrOut = guest.ask(request.arg(&GetattrIn::default())).unwrap();
    });
    assert!(getattr.0 == 0 && getattr.1 <= 1, "GETATTR: {getattr:?}");
    // Of many pieces: one system call, not one for each.
    let read = cost(&mut guest, |guest| {
        let arg = ReadIn {
            size: 90_000,
            ..ReadIn::default()
        };
        let request = guest.request(Opcode::Read, 2).arg(&arg).finish();
        assert_eq!(guest.transact(1, &request, 90_016).len(), 90_016);
    });
    assert!(read.0 == 1 && read.1 <= 1, "READ: {read:?}");
    let write = cost(&mut guest, |guest| {
        let arg = WriteIn {
            size: 90_000,
            ..WriteIn::default()
        };
        let request = guest.request(Opcode::Write, 2).arg(&arg);
        let request = request.bytes(&[1; 90_000]).finish();
        assert_eq!(guest.transact(1, &request, 100).len(), 24);
    });
    assert!(write.0 == 0 && write.1 <= 2, "WRITE: {write:?}");
    end(serving, guest);
}

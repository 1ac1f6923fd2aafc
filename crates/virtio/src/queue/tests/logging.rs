//! What a queue notes of its own writes.

use super::{GUEST, MEMORY_BYTES, USER, memory_file, regions};
use crate::memory::{DirtyLog, LOG_PAGE_BYTES};
use crate::queue::{Layout, Ring, RingFeatures, RingLog};
use std::os::fd::OwnedFd;
use std::sync::Arc;

const SIZE: u16 = 1024;
const AVAILABLE: u64 = 0x5000;
/// Of three pages: the index on the first, the event index on the last.
const USED: u64 = 0x8000;

struct Logged {
    ring: Ring,
    log: OwnedFd,
}

impl Logged {
    fn new(event_index: bool, used: Option<u64>) -> Logged {
        let memory = memory_file(MEMORY_BYTES);
        let layout = Layout {
            size: SIZE,
            descriptors: USER,
            available: USER + AVAILABLE,
            used: USER + USED,
        };
        let features = RingFeatures {
            event_index,
            indirect: true,
        };
        let mut ring = Ring::new(regions(&memory), layout, features, 0).unwrap();
        let log = memory_file(4096);
        let mapped = DirtyLog::map(&log, 0, 4096).unwrap();
        ring.set_log(Some(RingLog {
            log: Arc::new(mapped),
            used,
        }));
        Logged { ring, log }
    }

    /// The pages from the used ring's first that are noted, which are taken away.
    fn take(&self) -> Vec<u64> {
        let mut bytes = [0; 4096];
        rustix::io::pread(&self.log, &mut bytes, 0).unwrap();
        rustix::io::pwrite(&self.log, &[0; 4096], 0).unwrap();
        let first = (GUEST + USED) / LOG_PAGE_BYTES;
        let noted = |page: &u64| bytes[(page / 8) as usize] >> (page % 8) & 1 != 0;
        (0..4096 * 8)
            .filter(noted)
            .map(|page| page - first)
            .collect()
    }
}

#[test]
fn every_write_to_the_used_ring_is_noted() {
    let mut logged = Logged::new(true, Some(GUEST + USED));
    for number in 0..SIZE {
        logged.ring.complete(number, 1).unwrap();
        // Elements of eight bytes after a head of four; the index is on the first page.
        let (start, end) = (4 + u64::from(number) * 8, 11 + u64::from(number) * 8);
        let mut expected = vec![0, start / LOG_PAGE_BYTES, end / LOG_PAGE_BYTES];
        expected.dedup();
        assert_eq!(logged.take(), expected, "element {number}");
    }
    logged.ring.ask_to_be_told().unwrap();
    assert_eq!(logged.take(), [2], "the event index");
}

#[test]
fn flags_are_noted_where_there_is_no_event_index() {
    let mut logged = Logged::new(false, Some(GUEST + USED));
    logged.ring.look_by_ourselves().unwrap();
    assert_eq!(logged.take(), [0]);
    logged.ring.ask_to_be_told().unwrap();
    assert_eq!(logged.take(), [0]);
}

#[test]
fn nothing_is_noted_that_was_not_asked_for() {
    let mut logged = Logged::new(true, None);
    logged.ring.complete(0, 1).unwrap();
    assert_eq!(logged.take(), [0; 0]);
    assert!(logged.ring.log().is_some(), "for what requests write");
    logged.ring.set_log(None);
    assert!(logged.ring.log().is_none());
}

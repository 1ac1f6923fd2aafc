mod logging;

use super::*;
use crate::journal::{Journal, Tracker};
use crate::memory::tests::memory_file;
use crate::memory::{Region, Regions};
use std::os::fd::OwnedFd;
use std::sync::Arc;

const GUEST: u64 = 0x1_0000;
const USER: u64 = 0x7f00_0000_0000;
const MEMORY_BYTES: u64 = 0x2_0000;
const SIZE: u16 = 8;

const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
const TABLE: u64 = 0x3000;
const DATA: u64 = 0x8000;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

const BOTH: VirtqueueFeatures = VirtqueueFeatures {
    event_index: true,
    indirect: true,
};

/// A guest with one queue, written by hand.
struct Guest {
    memory: OwnedFd,
    ring: VirtqueueRing,
    chain: Chain,
    made_available: u16,
}

impl Guest {
    fn new(features: VirtqueueFeatures) -> Guest {
        let memory = memory_file(MEMORY_BYTES);
        let ring = VirtqueueRing::new(regions(&memory), layout(), features, 0).unwrap();
        Guest {
            memory,
            ring,
            chain: Chain::default(),
            made_available: 0,
        }
    }

    fn put(&self, offset: u64, bytes: &[u8]) {
        rustix::io::pwrite(&self.memory, bytes, offset).unwrap();
    }

    fn get<const N: usize>(&self, offset: u64) -> [u8; N] {
        let mut bytes = [0; N];
        rustix::io::pread(&self.memory, &mut bytes, offset).unwrap();
        bytes
    }

    fn descriptor(&self, at: u64, address: u64, length: u32, flags: u16, next: u16) {
        let mut bytes = Vec::new();
        bytes.extend(address.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        self.put(at, &bytes);
    }

    /// Descriptor `index` of the queue's own table.
    fn direct(&self, index: u16, address: u64, length: u32, flags: u16, next: u16) {
        self.descriptor(u64::from(index) * 16, address, length, flags, next);
    }

    fn offer(&mut self, head: u16) {
        let slot = u64::from(self.made_available % SIZE);
        self.put(AVAILABLE + 4 + slot * 2, &head.to_le_bytes());
        self.made_available = self.made_available.wrapping_add(1);
        self.set_index(self.made_available);
    }

    fn set_index(&self, index: u16) {
        self.put(AVAILABLE + 2, &index.to_le_bytes());
    }

    fn read(&mut self, head: u16) -> Result<(usize, usize), ChainFault> {
        self.ring.read_chain(head, &mut self.chain)?;
        Ok((self.chain.readable_bytes(), self.chain.writable_bytes()))
    }
}

fn regions(memory: &OwnedFd) -> Arc<Regions> {
    let region = Region::map(GUEST, USER, MEMORY_BYTES, memory, 0).unwrap();
    Arc::new(Regions::new(vec![region]).unwrap())
}

fn layout() -> VirtqueueLayout {
    VirtqueueLayout {
        size: SIZE,
        descriptors: USER,
        available: USER + AVAILABLE,
        used: USER + USED,
    }
}

#[test]
fn malformed_chains_are_refused() {
    let mut guest = Guest::new(BOTH);
    let end = GUEST + MEMORY_BYTES;
    type Case = (&'static str, ChainFault, fn(&Guest, u64));
    let cases: &[Case] = &[
        ("itself", ChainFault::TooLong, |guest, _| {
            guest.direct(0, GUEST, 1, NEXT, 0);
        }),
        ("a loop", ChainFault::TooLong, |guest, _| {
            guest.direct(0, GUEST, 1, NEXT, 1);
            guest.direct(1, GUEST, 1, NEXT, 0);
        }),
        (
            "beyond the table",
            ChainFault::NoSuchDescriptor,
            |guest, _| {
                guest.direct(0, GUEST, 1, NEXT, SIZE);
            },
        ),
        ("beyond memory", ChainFault::Outside, |guest, end| {
            guest.direct(0, end - 4, 5, 0, 0);
        }),
        ("before memory", ChainFault::Outside, |guest, _| {
            guest.direct(0, GUEST - 1, 1, 0, 0);
        }),
        ("wrapping", ChainFault::Outside, |guest, _| {
            guest.direct(0, u64::MAX - 3, 8, WRITE, 0);
        }),
        ("too much", ChainFault::TooLarge, |guest, _| {
            guest.direct(0, GUEST, u32::MAX, 0, 0);
        }),
        ("read after written", ChainFault::WrongOrder, |guest, _| {
            guest.direct(0, GUEST, 1, NEXT | WRITE, 1);
            guest.direct(1, GUEST, 1, 0, 0);
        }),
        ("a table in a table", ChainFault::BadTable, |guest, _| {
            guest.direct(0, GUEST + TABLE, 16, INDIRECT, 0);
            guest.descriptor(TABLE, GUEST + TABLE, 16, INDIRECT, 0);
        }),
        ("a table and more", ChainFault::BadTable, |guest, _| {
            guest.direct(0, GUEST + TABLE, 16, INDIRECT | NEXT, 1);
        }),
        ("no table", ChainFault::BadTable, |guest, _| {
            guest.direct(0, GUEST + TABLE, 0, INDIRECT, 0);
        }),
        ("half a descriptor", ChainFault::BadTable, |guest, _| {
            guest.direct(0, GUEST + TABLE, 24, INDIRECT, 0);
        }),
        ("a table too long", ChainFault::BadTable, |guest, _| {
            guest.direct(0, GUEST + TABLE, 1025 * 16, INDIRECT, 0);
        }),
        (
            "a table beyond memory",
            ChainFault::Outside,
            |guest, end| {
                guest.direct(0, end - 16, 32, INDIRECT, 0);
                guest.descriptor(MEMORY_BYTES - 16, GUEST, 1, NEXT, 1);
            },
        ),
        (
            "a table at the end of all",
            ChainFault::Outside,
            |guest, _| {
                guest.direct(0, u64::MAX - 7, 32, INDIRECT, 0);
            },
        ),
        ("a loop in a table", ChainFault::TooLong, |guest, _| {
            guest.direct(0, GUEST + TABLE, 32, INDIRECT, 0);
            guest.descriptor(TABLE, GUEST, 1, NEXT, 1);
            guest.descriptor(TABLE + 16, GUEST, 1, NEXT, 0);
        }),
        (
            "out of a table",
            ChainFault::NoSuchDescriptor,
            |guest, _| {
                guest.direct(0, GUEST + TABLE, 32, INDIRECT, 0);
                guest.descriptor(TABLE, GUEST, 1, NEXT, 2);
            },
        ),
    ];
    for (what, fault, make) in cases {
        make(&guest, end);
        assert_eq!(guest.read(0), Err(*fault), "{what}");
    }
    // No extent of it stays.
    guest.direct(0, GUEST + DATA, 8, 0, 0);
    assert_eq!(guest.read(0), Ok((8, 0)));
}

#[test]
fn chains_of_too_many_bytes_are_refused() {
    const MOST: u64 = (32 << 20) / MEMORY_BYTES;
    assert_eq!(of_parts(MOST as u16).read(0), Ok((0, 32 << 20)));
    let more = of_parts(MOST as u16 + 1).read(0);
    assert_eq!(more, Err(ChainFault::TooLarge));
}

/// A table of `parts` descriptors for replies, each of the whole memory.
fn of_parts(parts: u16) -> Guest {
    let guest = Guest::new(BOTH);
    guest.direct(0, GUEST + TABLE, u32::from(parts) * 16, INDIRECT, 0);
    for index in 0..parts {
        let next = NEXT * u16::from(index < parts - 1);
        let at = TABLE + u64::from(index) * 16;
        guest.descriptor(at, GUEST, MEMORY_BYTES as u32, WRITE | next, index + 1);
    }
    guest
}

#[test]
fn indirect_tables_need_the_feature() {
    let mut guest = Guest::new(VirtqueueFeatures {
        indirect: false,
        ..BOTH
    });
    guest.direct(0, GUEST + TABLE, 16, INDIRECT, 0);
    assert_eq!(guest.read(0), Err(ChainFault::BadTable));
}

#[test]
fn malformed_rings_are_broken() {
    let mut guest = Guest::new(BOTH);
    guest.set_index(SIZE + 1);
    assert_eq!(guest.ring.take(), Err(Broken::Overrun));
    let mut guest = Guest::new(BOTH);
    guest.offer(SIZE);
    assert_eq!(guest.ring.take(), Err(Broken::NoSuchDescriptor));
    let mut guest = Guest::new(BOTH);
    guest.offer(2);
    guest.offer(2);
    assert_eq!(guest.ring.take(), Ok(Some(2)));
    assert_eq!(guest.ring.take(), Err(Broken::InUse));
    let mut guest = Guest::new(BOTH);
    guest.offer(2);
    assert_eq!(guest.ring.take(), Ok(Some(2)));
    guest.ring.complete(2, 0).unwrap();
    guest.offer(2);
    assert_eq!(guest.ring.take(), Ok(Some(2)), "given back, and free again");
}

#[test]
fn queues_outside_memory_or_of_a_wrong_size_are_refused() {
    let memory = memory_file(MEMORY_BYTES);
    let with = |change: fn(&mut VirtqueueLayout)| {
        let mut layout = layout();
        change(&mut layout);
        VirtqueueRing::new(regions(&memory), layout, BOTH, 0).err()
    };
    assert_eq!(with(|_| {}), None);
    assert_eq!(with(|layout| layout.size = 0), Some(Broken::Size));
    assert_eq!(with(|layout| layout.size = 12), Some(Broken::Size));
    assert_eq!(with(|layout| layout.used = GUEST), Some(Broken::Outside));
    assert_eq!(with(|layout| layout.used += 2), Some(Broken::Outside));
    assert_eq!(with(|layout| layout.available += 1), Some(Broken::Outside));
    let odd = with(|layout| layout.descriptors += 8);
    assert_eq!(odd, Some(Broken::Outside));
    // Up to the last byte, and one beyond. The rings are 22 and 70 bytes long.
    let end = USER + MEMORY_BYTES;
    let at = |place: fn(&mut VirtqueueLayout) -> &mut u64, before_end: u64| {
        let mut layout = layout();
        *place(&mut layout) = end - before_end;
        VirtqueueRing::new(regions(&memory), layout, BOTH, 0).err()
    };
    for (place, fits, does_not) in [
        (
            (|it| &mut it.descriptors) as fn(&mut VirtqueueLayout) -> &mut u64,
            128,
            112,
        ),
        (|it| &mut it.available, 22, 20),
        (|it| &mut it.used, 72, 68),
    ] {
        assert_eq!(at(place, fits), None);
        assert_eq!(at(place, does_not), Some(Broken::Outside));
    }
    let wrapping = |layout: &mut VirtqueueLayout| layout.descriptors = !15;
    assert_eq!(with(wrapping), Some(Broken::Outside));
}

#[test]
fn heads_taken_elsewhere_are_tracked_and_in_use() {
    let mut guest = Guest::new(BOTH);
    let journal = Journal::new().unwrap();
    let tracker = Tracker::new(Some(&journal), None, 0, SIZE);
    guest.ring.track(tracker, &[]);
    guest.ring.note_taken(3);
    assert!(guest.ring.tracker().number_of(3) > 0);
    assert_eq!(guest.ring.mark(3), Ok(()));
    assert_eq!(guest.ring.mark(3), Err(Broken::InUse));
    guest.ring.unmark_all();
    assert_eq!(guest.ring.mark(3), Ok(()));
}

#[test]
fn the_guest_is_notified_at_its_event_index() {
    let mut guest = Guest::new(BOTH);
    let event = AVAILABLE + 4 + u64::from(SIZE) * 2;
    let give_back = |guest: &mut Guest, head| {
        guest.offer(head);
        assert_eq!(guest.ring.take(), Ok(Some(head)));
        guest.ring.complete(head, 0).unwrap();
    };
    assert_eq!(guest.ring.needs_notification(), Ok(false), "of nothing");
    give_back(&mut guest, 0);
    assert_eq!(guest.ring.needs_notification(), Ok(true));
    assert_eq!(guest.ring.needs_notification(), Ok(false), "once");
    // Only from the fourth on.
    guest.put(event, &3_u16.to_le_bytes());
    give_back(&mut guest, 1);
    assert_eq!(guest.ring.needs_notification(), Ok(false));
    give_back(&mut guest, 2);
    assert_eq!(guest.ring.needs_notification(), Ok(false));
    give_back(&mut guest, 3);
    assert_eq!(guest.ring.needs_notification(), Ok(true));
    give_back(&mut guest, 4);
    assert_eq!(guest.ring.needs_notification(), Ok(false), "that is past");
    let regions = Arc::clone(guest.ring.regions());
    let mut again = VirtqueueRing::new(regions, layout(), BOTH, 5).unwrap();
    assert_eq!(again.needs_notification(), Ok(false), "of this device");
}

#[test]
fn without_the_event_index_flags_suppress_notifications_and_kicks() {
    let mut guest = Guest::new(VirtqueueFeatures {
        event_index: false,
        ..BOTH
    });
    guest.ring.disable_kicks().unwrap();
    assert_eq!(guest.get(USED), [1, 0]);
    assert_eq!(guest.ring.enable_kicks(), Ok(false));
    assert_eq!(guest.get(USED), [0, 0]);
    guest.offer(0);
    guest.ring.take().unwrap();
    guest.ring.complete(0, 0).unwrap();
    guest.put(AVAILABLE, &[1, 0]);
    let notifies = guest.ring.needs_notification();
    assert_eq!(notifies, Ok(false), "the guest polls");
    guest.offer(1);
    guest.ring.take().unwrap();
    guest.ring.complete(1, 0).unwrap();
    guest.put(AVAILABLE, &[0, 0]);
    assert_eq!(guest.ring.needs_notification(), Ok(true));
}

#[test]
fn enabling_kicks_sees_what_is_available_already() {
    let mut guest = Guest::new(BOTH);
    let event = USED + 4 + u64::from(SIZE) * 8;
    guest.offer(0);
    guest.ring.take().unwrap();
    assert_eq!(guest.ring.enable_kicks(), Ok(false));
    assert_eq!(guest.get(event), 1_u16.to_le_bytes());
    guest.offer(1);
    assert_eq!(guest.ring.enable_kicks(), Ok(true), "it is there already");
}

#[test]
fn regions_are_replaced_while_chains_keep_the_old_ones() {
    let mut guest = Guest::new(BOTH);
    guest.offer(0);
    guest.ring.set_regions(regions(&guest.memory)).unwrap();
    assert_eq!(guest.ring.take(), Ok(Some(0)));
    let none = Arc::new(Regions::default());
    assert_eq!(guest.ring.set_regions(none), Err(Broken::Outside));
}

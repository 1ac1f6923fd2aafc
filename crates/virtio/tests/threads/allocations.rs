//! A queue's thread allocates nothing for LOOKUP, GETATTR, READ, WRITE and FORGET after the first of each.
//! The counting allocator needs `unsafe impl`; it is in this test alone.
#![allow(unsafe_code)]

use crate::ground::{ALL_FEATURES, Guest, end, serve};
use crate::still::{self, Still};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use thrufs::Opcode;
use thrufs_abi::layout::{ReadIn, WriteIn};
use thrufs_virtio::DeviceConfig;

struct Counting;

thread_local! {
    // Needs no destructor and no allocation.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator as it came; counting touches a thread-local
// number only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; `pointer` came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(guest: &mut Guest) -> u64 {
    still::counts(guest).unwrap().0
}

/// One of each, on queue 1.
fn some_requests(guest: &mut Guest) {
    let request = guest.request(Opcode::Lookup, 1).name(b"a name").finish();
    guest.transact(1, &request, 200);
    for node in [2, 3] {
        let arg = ReadIn {
            size: 60_000,
            ..ReadIn::default()
        };
        let request = guest.request(Opcode::Read, node).arg(&arg).finish();
        guest.transact(1, &request, 60_016);
    }
    let arg = WriteIn {
        size: 50_000,
        ..WriteIn::default()
    };
    let request = guest.request(Opcode::Write, 2).arg(&arg);
    let reply = guest.transact(1, &request.bytes(&[1; 50_000]).finish(), 100);
    assert_eq!(reply.len(), 24);
    let request = guest.request(Opcode::Forget, 2).arg(&1_u64).finish();
    let head = guest.submit(1, &request, 0);
    assert_eq!(guest.next_used(1), (head, 0));
}

#[test]
fn the_queue_s_thread_allocates_nothing_per_request() {
    let _alone = crate::alone();
    let make = || Still::make(|| Ok((ALLOCATIONS.get(), 0)));
    let (_, serving, mut guest) = serve(make, DeviceConfig::default(), ALL_FEATURES);
    guest.init().unwrap();
    some_requests(&mut guest);
    let before = allocations(&mut guest);
    assert!(before > 0, "it counts");
    for _ in 0..100 {
        some_requests(&mut guest);
    }
    assert_eq!(allocations(&mut guest), before);
    end(serving, guest);
}

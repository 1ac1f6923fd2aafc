//! A queue's thread allocates nothing for LOOKUP, GETATTR, READ, WRITE and FORGET after the first of each.
//! The counting allocator needs `unsafe impl`; it is in this test alone.
#![allow(unsafe_code)]

use crate::ground::{Guest, end};
use crate::still;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use thrufs::Opcode;

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

/// One of each, on queue 1.
fn some_requests(guest: &mut Guest) {
    let request = guest.request(Opcode::Lookup, 1).name(b"a name").finish();
    guest.transact(1, &request, 200);
    for node in [2, 3] {
        let request = guest.read_request(node, 0, 0, 60_000);
        guest.transact(1, &request, 60_016);
    }
    let request = guest.write_request(2, 0, 0, &[1; 50_000]).finish();
    let reply = guest.transact(1, &request, 100);
    assert_eq!(reply.len(), 24);
    let request = guest.request(Opcode::Forget, 2).arg(&1_u64).finish();
    let head = guest.submit(1, &request, 0);
    assert_eq!(guest.next_used(1), (head, 0));
}

#[test]
fn the_queue_s_thread_allocates_nothing_per_request() {
    let _alone = crate::alone();
    let (serving, mut guest, counts) = still::begin(|| Ok((ALLOCATIONS.get(), 0)));
    some_requests(&mut guest);
    let before = counts.of(&mut guest).unwrap();
    assert!(before.0 > 0, "it counts");
    for _ in 0..100 {
        some_requests(&mut guest);
    }
    assert_eq!(counts.of(&mut guest), Ok(before));
    end(serving, guest);
}

//! Lookup, getattr, read and write of known files allocate nothing, from the bytes of the request to
//! those of the reply.
//!
//! # Safety
//!
//! The allocator below hands every call on to the system's and counts; it touches no memory itself.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use thrufs_abi::layout::{GetattrIn, ReadIn, WriteIn};
use thrufs_abi::{Reply, RequestBuilder, Unique};
use thrufs_hostdir::{Config, HostDir, Ledger, Resources};
use thrufs_testing::Client;
use thrufs_tests::prelude::*;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that ends has no counter any more.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: all of it is the system allocator's doing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations_of(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn the_hot_requests_allocate_nothing() {
    for ledger in [None, Some(Ledger::new().unwrap())] {
        hot_requests(Resources {
            ledger,
            ..Resources::default()
        });
    }
}

fn hot_requests(resources: Resources) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), vec![7; 8192]).unwrap();
    let host = HostDir::open(directory.path(), Config::default(), resources).unwrap();
    let client = Client::connect(Arc::new(host)).unwrap();
    let root = client.root();
    let node = root.walk("file").unwrap();
    let fh = root.open(node, libc::O_RDWR).unwrap().fh;

    let unique = || Unique(1000);
    let lookup = RequestBuilder::new(Opcode::Lookup, unique(), NodeId::ROOT)
        .name(b"file")
        .finish();
    let absent = RequestBuilder::new(Opcode::Lookup, unique(), NodeId::ROOT)
        .name(b"none")
        .finish();
    let getattr = RequestBuilder::new(Opcode::Getattr, unique(), node)
        .arg(&GetattrIn::default())
        .finish();
    let read = ReadIn {
        fh,
        size: 4096,
        ..ReadIn::default()
    };
    let read = RequestBuilder::new(Opcode::Read, unique(), node)
        .arg(&read)
        .finish();
    let write = WriteIn {
        fh,
        size: 4096,
        ..WriteIn::default()
    };
    let write = RequestBuilder::new(Opcode::Write, unique(), node)
        .arg(&write)
        .bytes(&[9; 4096])
        .finish();

    let mut reply = vec![0; 64 * 1024];
    for (name, request) in [
        ("LOOKUP", &lookup),
        ("LOOKUP of nothing", &absent),
        ("GETATTR", &getattr),
        ("READ", &read),
        ("WRITE", &write),
    ] {
        // The first one opens what the thread and the inode keep from then on.
        let mut serve = || {
            let length = client.dispatcher().answer(request, &mut reply);
            // The absence of a name may be cached: it is no error.
            let answer = Reply::parse(&reply[..length]).unwrap();
            assert!(answer.error == 0 && !answer.body.is_empty(), "{name}");
        };
        serve();
        let allocations = allocations_of(|| (0..100).for_each(|_| serve()));
        assert_eq!(allocations, 0, "{name}");
    }
    // The counter counts.
    assert!(allocations_of(|| drop(vec![0u8; 10])) > 0);
}

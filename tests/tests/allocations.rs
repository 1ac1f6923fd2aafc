//! Lookup, getattr, read and write of known files allocate nothing, from the bytes of the request to
//! those of the reply. What anybody may send allocates no more than its bytes.
//!
//! # Safety
//!
//! The allocator below hands every call on to the system's and counts; it touches no memory itself.
#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use thrufs::FileSystem;
use thrufs_abi::layout::{GetattrIn, ReadIn, WriteIn};
use thrufs_abi::{Reply, RequestBuilder, Unique};
use thrufs_hostdir::{Config, HostDir, Ledger, Resources};
use thrufs_testing::{Client, Random};
use thrufs_tests::prelude::*;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

fn count(bytes: usize) {
    // A thread that ends has no counter any more.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(bytes)));
}

// SAFETY: all of it is the system allocator's doing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
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

/// The error of a state with this inside of its only chunk, which says that it has `length` bytes. No allocation is larger
/// than a chunk may be.
fn refused_state(source: &Path, length: usize, inside: &[u8]) -> io::Error {
    let state = [&(length as u32).to_le_bytes(), inside, &[0; 4]].concat();
    let host = HostDir::open(source, Config::default(), Resources::default()).unwrap();
    LARGEST.set(0);
    let refused = host.restore(&mut &*state).unwrap_err();
    let largest = LARGEST.get();
    assert!(largest <= 1 << 20, "{refused}: {largest} bytes at once");
    refused
}

#[test]
fn a_forged_state_allocates_no_more_than_a_chunk() {
    const COUNTS_MAX: [u32; 6] = [4096, 1 << 24, 1 << 24, 1 << 20, 1 << 20, 8192];
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path();
    let header = |counts: [u32; 6]| {
        let saved = (0_u8, false, [0_u32; 3], counts);
        postcard::to_extend(&saved, b"THRUHOST".to_vec()).unwrap()
    };
    let inside = header([0; 6]);
    for length in [inside.len() + 9, 1 << 20, (1 << 20) + 1, u32::MAX as usize] {
        let refused = refused_state(source, length, &inside);
        let expected = match length > 1 << 20 {
            true => io::ErrorKind::InvalidData,
            false => io::ErrorKind::UnexpectedEof,
        };
        assert_eq!(refused.kind(), expected, "{length}: {refused}");
    }
    let mut random = Random(5);
    for _ in 0..500 {
        for (kind, most) in COUNTS_MAX.into_iter().enumerate() {
            let mut counts = [0; 6];
            counts[kind] = most;
            let mut inside = header(counts);
            // Whether something is there, lengths and numbers: small ones, and the largest.
            for _ in 0..random.below(12) {
                let number = random.pick(&[0, 1, 2, u64::MAX >> 33, u64::MAX >> 1, u64::MAX]);
                inside = postcard::to_extend(&number, inside).unwrap();
            }
            let more = random.below(100);
            inside.extend(random.bytes(more));
            let refused = refused_state(source, inside.len(), &inside);
            assert_ne!(refused.to_string(), "", "{inside:?}");
        }
    }
}

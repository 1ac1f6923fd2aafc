//! A queue's thread allocates nothing for LOOKUP, GETATTR, READ and WRITE, once it has served one.
//!
//! An allocator that counts can only be written with `unsafe impl`; no library or program contains it.
#![allow(unsafe_code)]

use crate::ground::{ALL_FEATURES, Guest, serve};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use thrufs::layout::Attr;
use thrufs::{
    Attributes, Context, Entry, FileHandle, FileSystem, Generation, LowerFile, Name, NoWait,
    NodeId, Opcode, ReadAnswer, ReadArgs, ReadReply, Result, WriteArgs, WriteSource,
};
use thrufs_abi::layout::{AttrOut, GetattrIn, ReadIn, WriteIn};
use thrufs_virtio::{DeviceConfig, Served};

struct Counting;

thread_local! {
    // Without a destructor and without an allocation of its own.
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

const VALID: Duration = Duration::from_secs(1);

/// Allocates nothing, and tells as the size of a file how much the thread that serves it has.
struct Still {
    lower: Arc<LowerFile>,
}

impl Still {
    fn attr() -> Attr {
        Attr {
            size: ALLOCATIONS.get(),
            ..Attr::default()
        }
    }
}

impl FileSystem for Still {
    fn lookup(&self, _: &Context<'_>, _: NodeId, _: Name<'_>) -> Result<Entry> {
        Ok(Entry {
            node: NodeId(2),
            generation: Generation(0),
            attr: Still::attr(),
            entry_timeout: VALID,
            attr_timeout: VALID,
        })
    }

    fn getattr(&self, _: &Context<'_>, _: NodeId, _: Option<FileHandle>) -> Result<Attributes> {
        Ok(Attributes {
            attr: Still::attr(),
            timeout: VALID,
        })
    }

    fn read(
        &self,
        _: &Context<'_>,
        node: NodeId,
        args: &ReadArgs,
        reply: ReadReply<'_>,
    ) -> Result<ReadAnswer> {
        if node == NodeId(3) {
            return Ok(reply.bytes(&[7; 4096]));
        }
        Ok(reply.file(Arc::clone(&self.lower), args.offset))
    }

    fn write(
        &self,
        _: &Context<'_>,
        _: NodeId,
        args: &WriteArgs,
        source: WriteSource<'_>,
    ) -> Result<usize> {
        source.write_to(&self.lower, args.offset)
    }
}

fn allocations(guest: &mut Guest) -> u64 {
    let request = guest.request(Opcode::Getattr, 2).arg(&GetattrIn::default());
    let out: AttrOut = guest.ask(request).unwrap();
    out.attr.size
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
}

#[test]
fn no_allocation_per_request() {
    let _alone = crate::alone();
    let make = || {
        let lower = tempfile::tempfile()?;
        lower.set_len(1 << 20)?;
        let lower = Arc::new(LowerFile::new(lower.into(), NoWait::Memory));
        Ok(Arc::new(Still { lower }))
    };
    let (_, serving, mut guest) = serve(make, DeviceConfig::default(), ALL_FEATURES);
    guest.init().unwrap();
    some_requests(&mut guest);
    let before = allocations(&mut guest);
    assert!(before > 0, "it counts");
    for _ in 0..100 {
        some_requests(&mut guest);
    }
    assert_eq!(allocations(&mut guest), before);
    drop(guest);
    assert_eq!(serving.join().unwrap().unwrap(), Served::Disconnected);
}

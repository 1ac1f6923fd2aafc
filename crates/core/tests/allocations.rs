//! LOOKUP, GETATTR, READ and WRITE allocate nothing on their way through the dispatcher.
//!
//! An allocator that counts can only be written with `unsafe impl`: this file is the one outside
//! `thrufs-sys` that has it, and no library or program contains it.
#![allow(clippy::unwrap_used, unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use thrufs::layout::{Attr, InitIn, ReadIn, WriteIn};
use thrufs::{
    Attributes, Context, Dispatcher, Entry, FileHandle, FileSystem, Generation, LowerFile, Name,
    NoWait, NodeId, Opcode, Outcome, ReadAnswer, ReadArgs, ReadReply, Result, Unique, WriteArgs,
    WriteSource,
};
use thrufs_abi::RequestBuilder;

struct Counting;

thread_local! {
    // Without a destructor and without an allocation of its own.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
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

/// Answers without allocating, so that whatever is counted is the dispatcher's.
struct Still {
    lower: Arc<LowerFile>,
}

const VALID: Duration = Duration::from_secs(1);

impl FileSystem for Still {
    fn lookup(&self, _: &Context<'_>, _: NodeId, _: Name<'_>) -> Result<Entry> {
        let (node, generation) = (NodeId(2), Generation(0));
        let attr = Attr::default();
        Ok(Entry {
            node,
            generation,
            attr,
            entry_timeout: VALID,
            attr_timeout: VALID,
        })
    }

    fn getattr(&self, _: &Context<'_>, _: NodeId, _: Option<FileHandle>) -> Result<Attributes> {
        Ok(Attributes {
            attr: Attr::default(),
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
        data: WriteSource<'_>,
    ) -> Result<usize> {
        data.write_to(&self.lower, args.offset)
    }
}

fn request(opcode: Opcode, node: u64) -> RequestBuilder {
    RequestBuilder::new(opcode, Unique(10), NodeId(node))
}

#[test]
fn no_allocation_per_request() {
    let lower = tempfile::tempfile().unwrap();
    lower.set_len(1 << 20).unwrap();
    let lower = Arc::new(LowerFile::new(lower.into(), NoWait::Memory));
    let dispatcher = Dispatcher::new(Arc::new(Still { lower }));
    let mut reply = vec![0; 70_000];
    let init = InitIn {
        major: 7,
        minor: 45,
        ..InitIn::default()
    };
    assert!(dispatcher.answer(&request(Opcode::Init, 0).arg(&init).finish(), &mut reply) > 16);
    let read = ReadIn {
        size: 4096,
        ..ReadIn::default()
    };
    let write = WriteIn {
        size: 4096,
        ..WriteIn::default()
    };
    let requests = [
        (
            "lookup",
            request(Opcode::Lookup, 1)
                .name(b"a-name-of-some-length")
                .finish(),
        ),
        (
            "getattr",
            request(Opcode::Getattr, 2).arg(&[0_u64; 2]).finish(),
        ),
        (
            "read of a file",
            request(Opcode::Read, 2).arg(&read).finish(),
        ),
        (
            "read in place",
            request(Opcode::Read, 3).arg(&read).finish(),
        ),
        (
            "write",
            request(Opcode::Write, 2)
                .arg(&write)
                .bytes(&[1; 4096])
                .finish(),
        ),
        ("forget", request(Opcode::Forget, 2).arg(&1_u64).finish()),
    ];
    let serve = |request: &[u8], reply: &mut [u8]| match dispatcher.dispatch(request, reply, false)
    {
        Outcome::File(file) => {
            let result = file.read_into(reply, false);
            dispatcher.finish_file_reply(&file, reply, result)
        }
        Outcome::Reply(length) => length,
        Outcome::Silent => 0,
        Outcome::Defer(wait) => panic!("deferred: {wait:?}"),
    };
    // The first request of a thread makes its shard of the counters.
    serve(&requests[0].1, &mut reply);
    let probe = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(5)));
    assert_eq!(ALLOCATIONS.get(), probe + 1, "the counter counts");
    for (name, request) in &requests {
        let before = ALLOCATIONS.get();
        for _ in 0..1000 {
            let length = serve(request, &mut reply);
            assert_eq!(length == 0, *name == "forget", "{name}");
        }
        assert_eq!(ALLOCATIONS.get() - before, 0, "{name}");
    }
    let counts = dispatcher.metrics().snapshot();
    assert_eq!(counts.operation(Opcode::Read).unwrap().bytes, 2000 * 4096);
    assert_eq!(counts.operation(Opcode::Write).unwrap().errors, 0);
}

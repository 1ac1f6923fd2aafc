//! Requests through the one request path, to a small file system in memory.
//!
//! The input is a series of bodies; the first byte of each chooses the operation, so that mostly arguments
//! are tried. Every reply must have the length in its header, the request's number, and an error in the
//! range that the kernel accepts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::ffi::CStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thrufs::layout::{Attr, InitIn};
use thrufs::{
    Attributes, Context, DirectorySink, Dispatcher, Entry, Errno, FileHandle, FileSystem,
    Generation, Name, NodeId, Opcode, ReadAnswer, ReadArgs, ReadReply, Result, SetAttr, Unique,
    WriteArgs, WriteSource,
};
use thrufs_abi::RequestBuilder;
use thrufs_abi::reply::Reply;

/// Bytes of the file and of the attribute, at most.
const DATA_BYTES_MAX: usize = 64 * 1024;
/// Room for replies, as a transport has it for small requests.
const REPLY_BYTES: usize = 128 * 1024;
/// Requests per run.
const REQUESTS_MAX: usize = 64;
const VALID: Duration = Duration::from_secs(1);
const FILE: NodeId = NodeId(2);

#[derive(Debug, Default)]
struct State {
    data: Vec<u8>,
    attribute: Vec<u8>,
    mode: u32,
}

/// A root with one file, which answers to every name.
#[derive(Debug, Default)]
struct Memory(Mutex<State>);

impl Memory {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attr(&self, node: NodeId) -> Result<Attr> {
        let state = self.state();
        let mode = match node {
            NodeId::ROOT => 0o04_0755,
            FILE => 0o10_0000 | state.mode & 0o7777,
            _ => return Err(Errno::ESTALE),
        };
        let size = state.data.len() as u64;
        Ok(Attr {
            ino: node.0,
            size,
            mode,
            nlink: 1,
            ..Attr::default()
        })
    }

    fn entry(&self) -> Result<Entry> {
        Ok(Entry {
            node: FILE,
            generation: Generation(0),
            attr: self.attr(FILE)?,
            entry_timeout: VALID,
            attr_timeout: VALID,
        })
    }
}

impl FileSystem for Memory {
    fn lookup(&self, _: &Context<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        if name.as_bytes().starts_with(b"no") {
            return Ok(Entry::negative(VALID));
        }
        self.entry()
    }

    fn getattr(&self, _: &Context<'_>, node: NodeId, _: Option<FileHandle>) -> Result<Attributes> {
        Ok(Attributes {
            attr: self.attr(node)?,
            timeout: VALID,
        })
    }

    fn setattr(&self, _: &Context<'_>, node: NodeId, set: &SetAttr) -> Result<Attributes> {
        let size = set
            .size
            .map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        if size.is_some_and(|size| size > DATA_BYTES_MAX) {
            return Err(Errno::EFBIG);
        }
        let mut state = self.state();
        if let Some(size) = size {
            state.data.resize(size, 0);
        }
        state.mode = set.mode.unwrap_or(state.mode);
        drop(state);
        Ok(Attributes {
            attr: self.attr(node)?,
            timeout: VALID,
        })
    }

    fn readlink(&self, _: &Context<'_>, _: NodeId, buffer: &mut [u8]) -> Result<usize> {
        let target = b"else/where";
        buffer
            .get_mut(..target.len())
            .ok_or(Errno::ENAMETOOLONG)?
            .copy_from_slice(target);
        Ok(target.len())
    }

    fn read(
        &self,
        _: &Context<'_>,
        _: NodeId,
        args: &ReadArgs,
        reply: ReadReply<'_>,
    ) -> Result<ReadAnswer> {
        let state = self.state();
        let start = usize::try_from(args.offset)
            .unwrap_or(usize::MAX)
            .min(state.data.len());
        Ok(reply.bytes(&state.data[start..]))
    }

    fn write(
        &self,
        _: &Context<'_>,
        _: NodeId,
        args: &WriteArgs,
        data: WriteSource<'_>,
    ) -> Result<usize> {
        let start = usize::try_from(args.offset).map_err(|_| Errno::EFBIG)?;
        let end = start
            .checked_add(data.len())
            .filter(|&end| end <= DATA_BYTES_MAX);
        let end = end.ok_or(Errno::EFBIG)?;
        let mut state = self.state();
        if state.data.len() < end {
            state.data.resize(end, 0);
        }
        Ok(data.copy_to(&mut state.data[start..end]))
    }

    fn readdir(
        &self,
        _: &Context<'_>,
        _: NodeId,
        _: FileHandle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        let entry = self.entry()?;
        // A directory of as many entries as bytes of data, with names of all lengths.
        let count = self.state().data.len().min(255) as u64;
        for at in offset..count {
            let name = vec![b'n'; at as usize + 1];
            if !sink.entry_plus(&entry, at + 1, 8, &name) {
                break;
            }
        }
        Ok(())
    }

    fn setxattr(
        &self,
        _: &Context<'_>,
        _: NodeId,
        _: &CStr,
        value: &[u8],
        _: u32,
        _: bool,
    ) -> Result<()> {
        if value.len() > DATA_BYTES_MAX {
            return Err(Errno::E2BIG);
        }
        self.state().attribute = value.to_vec();
        Ok(())
    }

    fn getxattr(&self, _: &Context<'_>, _: NodeId, _: &CStr, buffer: &mut [u8]) -> Result<usize> {
        let state = self.state();
        if !buffer.is_empty() {
            let place = buffer
                .get_mut(..state.attribute.len())
                .ok_or(Errno::ERANGE)?;
            place.copy_from_slice(&state.attribute);
        }
        Ok(state.attribute.len())
    }
}

/// What Linux 6.18 offers.
fn init() -> Vec<u8> {
    let arg = InitIn {
        major: 7,
        minor: 45,
        max_readahead: 131_072,
        flags: 0x73ff_fffb,
        flags2: 0x7fd,
        ..InitIn::default()
    };
    RequestBuilder::new(Opcode::Init, Unique(2), NodeId(0))
        .arg(&arg)
        .finish()
}

fn ask(dispatcher: &Dispatcher<Memory>, request: &[u8], reply: &mut [u8]) {
    let length = dispatcher.answer(request, reply);
    if length == 0 {
        return;
    }
    let answer = Reply::parse(&reply[..length]).expect("a reply has the length that it says");
    let unique = request
        .get(8..16)
        .map(|field| field.try_into().expect("8 bytes"));
    assert_eq!(
        Some(answer.unique),
        unique.map(u64::from_ne_bytes).map(Unique)
    );
    assert!((-511..=0).contains(&answer.error), "error {}", answer.error);
    assert!(
        answer.error == 0 || answer.body.is_empty(),
        "an error with a body"
    );
}

fuzz_target!(|input: Vec<(u8, u64, bool, Vec<u8>)>| {
    let dispatcher = Dispatcher::new(Arc::new(Memory::default()));
    let mut reply = vec![0; REPLY_BYTES];
    ask(&dispatcher, &init(), &mut reply);
    for (at, (choice, node, raw, body)) in input.into_iter().take(REQUESTS_MAX).enumerate() {
        if raw {
            // Without a valid header.
            ask(&dispatcher, &body, &mut reply);
            continue;
        }
        let opcode = Opcode::ALL[usize::from(choice) % Opcode::ALL.len()];
        let request = RequestBuilder::new(opcode, Unique(at as u64 * 2 + 4), NodeId(node % 4));
        ask(&dispatcher, &request.bytes(&body).finish(), &mut reply);
    }
    assert_eq!(dispatcher.metrics().snapshot().panics, 0);
});

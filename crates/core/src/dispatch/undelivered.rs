//! Reverts a reply that was not delivered.
//!
//! When the kernel does not take a reply (ENOENT: the request was aborted meanwhile), it has not counted
//! its lookups and does not know its open file. The file system must not keep them for ever.

use super::Dispatcher;
use crate::attributes::ReleaseArgs;
use crate::context::Context;
use crate::file_system::FileSystem;
use crate::metrics::bump;
use std::panic::{AssertUnwindSafe, catch_unwind};
use thrufs_abi::layout::{EntryOut, OpenOut};
use thrufs_abi::opcode::ReplyBody;
use thrufs_abi::reply::DirectoryEntries;
use thrufs_abi::{Extensions, FileHandle, Header, NodeId, Payload, Reply, Request};
use zerocopy::FromBytes;

impl<F: FileSystem> Dispatcher<F> {
    /// Reverts the lookups and the open file of `reply`, the reply to `request`.
    pub fn undelivered(&self, request: &[u8], reply: &[u8]) {
        let dialect = self.dialect();
        match Request::parse(request, dialect, Payload::Inline) {
            Ok(request) => self.undelivered_later(&request.header, reply),
            Err(_) => bump(&self.metrics.figures.replies_refused),
        }
    }

    /// The same, for a reply that came later, of whose request the header is left.
    pub fn undelivered_later(&self, request: &Header, reply: &[u8]) {
        bump(&self.metrics.figures.replies_refused);
        let undo = AssertUnwindSafe(|| self.take_back(request, reply));
        if catch_unwind(undo).is_err() {
            bump(&self.metrics.figures.panics);
            tracing::error!("the file system panicked while it undid an undelivered reply");
        }
    }

    fn take_back(&self, request: &Header, reply: &[u8]) -> Option<()> {
        let reply = Reply::parse(reply).filter(|reply| reply.error == 0)?;
        let node = request.nodeid;
        match request.opcode.row().reply {
            ReplyBody::Entry => self.forget_entry(reply.structure()?),
            ReplyBody::EntryOpen => {
                let entry: EntryOut = reply.structure()?;
                let (opened, _) =
                    OpenOut::read_from_prefix(reply.body.get(size_of::<EntryOut>()..)?).ok()?;
                self.release(request, NodeId(entry.nodeid), &opened, false);
                self.forget_entry(entry);
            }
            ReplyBody::Entries => {
                DirectoryEntries::new(reply.body, true)
                    .filter_map(|entry| entry.entry)
                    .for_each(|entry| self.forget_entry(entry));
            }
            ReplyBody::Open => self.release(request, node, &reply.structure()?, false),
            ReplyBody::OpenDirectory => self.release(request, node, &reply.structure()?, true),
            ReplyBody::Silent
            | ReplyBody::Empty
            | ReplyBody::Fixed(_)
            | ReplyBody::Data
            | ReplyBody::Value
            | ReplyBody::Target
            | ReplyBody::Ioctl => {}
        }
        Some(())
    }

    fn forget_entry(&self, entry: EntryOut) {
        if entry.nodeid != 0 {
            self.fs.forget(NodeId(entry.nodeid), 1);
        }
    }

    fn release(&self, request: &Header, node: NodeId, opened: &OpenOut, directory: bool) {
        // On a reader, a release that sleeps delays the next request.
        let extensions = Extensions::default();
        let context = Context::new(request, &extensions, &self.interrupts, true);
        let handle = FileHandle(opened.fh);
        let args = ReleaseArgs {
            handle,
            flags: 0,
            flush: None,
            flock_unlock: None,
        };
        if directory {
            self.fs.releasedir(&context, node, &args);
        } else {
            self.fs.release(&context, node, &args);
        }
    }
}

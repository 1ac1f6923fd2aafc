//! File systems in user space, at the speed of the kernel's FUSE protocol.
//!
//! Implement [`FileSystem`] for a type, and [`mount`](fn@mount) it. Thrufs reads the kernel's requests,
//! calls one typed method for each, and writes the reply; it negotiates capabilities, carries requests
//! that sleep out on threads of their own, sends notifications, and keeps metrics.
//!
//! # A whole file system
//!
//! ```no_run
#![doc = include_str!("../examples/memory.rs")]
//! ```
//!
//! # The parts
//!
//! | part | what it is for |
//! |---|---|
//! | [`FileSystem`] | the methods, and what their answers mean to the kernel: the manual |
//! | [`Context`] | the caller; whether the thread may sleep; waits that the client's signal interrupts; answers that come later |
//! | [`Late`] | a request that any thread answers |
//! | [`Negotiation`], [`Features`] | capabilities: asked for in `init`, in force from `started` on |
//! | [`ReadReply`], [`WriteSource`], [`LowerFile`] | data: in place, or *this file, this offset* |
//! | [`Notifier`] | notifications: what changed without the kernel's knowledge |
//! | [`Backings`] | passthrough: lower files that the kernel reads and writes itself |
//! | [`mount`](fn@mount), [`MountedSession`] | mounting and serving in one call |
//! | [`Session`], [`mod@mount`] | the same in steps, for programs that mount in another process |
//! | [`Snapshot`] | counts and latencies of each operation, as a value or a table |
//! | [`Dispatcher`] | requests without a kernel: for other transports, tests and fuzzers |
//!
//! # Errors
//! A method fails with an [`Errno`], which the client gets. `ENOSYS`, the default of most methods, makes
//! the kernel do without the operation for good where it can. [`Errno::DEFER`] is no reply: the method is
//! called again on a thread that may sleep; nor is [`Errno::LATER`]: the answer comes later.
//!
//! # Sleeping
//!
//! One thread for each CPU reads requests, by default. A method that runs on it should not sleep for long:
//! it tests [`Context::may_block`], or calls [`Context::require_blocking`] first. Reads that are answered
//! with a [`LowerFile`] are tried without sleeping first. If a method sleeps on a reader all the same and
//! all readers are stuck for milliseconds, further readers are started. The bounds are in
//! [`SessionConfig`].
//!
//! # Answers that come later
//!
//! A method whose answer comes from elsewhere, by a callback for instance, takes its request with
//! [`Context::answer_later`] and returns [`Errno::LATER`]. No thread waits; any thread answers by
//! [`Late::give`].
//!
//! ```
//! use std::sync::mpsc::Sender;
//! use thrufs::{Context, Errno, Late, NodeId, ReadAnswer, ReadArgs, ReadReply, Result};
//!
//! /// A part of an object: its node, the offset, the most bytes, and whom to answer.
//! type Get = (NodeId, u64, usize, Late<Vec<u8>>);
//!
//! fn read(
//!     store: &Sender<Get>,
//!     context: &Context<'_>,
//!     node: NodeId,
//!     args: &ReadArgs,
//!     reply: &ReadReply<'_>,
//! ) -> Result<ReadAnswer> {
//!     let late = context.answer_later()?;
//!     // If nobody takes it, it is dropped, which is EIO.
//!     let _ = store.send((node, args.offset, reply.size(), late));
//!     Err(Errno::LATER)
//! }
//! ```
//!
//! `examples/objects.rs` is a whole file system.
//!
//! # Versions
//!
//! Protocol 7.31 (Linux 5.4) to 7.45 (Linux 6.18). 64-bit little-endian Linux only.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod attributes;
mod backing;
mod context;
mod data;
mod directory;
mod dispatch;
mod errno;
mod features;
mod file_system;
mod forward;
mod interrupt;
mod late;
pub mod metrics;
pub mod mount;
mod mounted;
mod notify;
mod reply;
pub mod serving;
pub mod session;
mod transport;
mod window;

pub use attributes::{
    Attributes, CopyArgs, Entry, ExtendedAttributes, FileSystemStatistics, LockArgs, NewNode,
    OpenArgs, Opened, ReadArgs, ReleaseArgs, SetAttr, SetTime, Timestamp, WriteArgs,
};
pub use backing::{Backing, Backings, Services};
pub use context::Context;
pub use data::{LowerFile, NoWait, OutOfLineData, ReadAnswer, ReadPart, ReadReply, WriteSource};
pub use directory::{DirectorySink, EntryKind, Listing};
pub use dispatch::{Begun, Dispatcher, FileReply, InitFailure, Message, Outcome, Wait};
pub use errno::{Errno, Result};
pub use features::{Features, Negotiation, Refusal};
pub use file_system::FileSystem;
pub use interrupt::{InterruptToken, Interrupts};
pub use late::{Data, Interrupted, Late, LateAnswer, LateRequest, LateTarget};
pub use metrics::{Metrics, OperationCounts, Snapshot};
pub use mount::{MountError, MountOptions};
pub use mounted::{MountFailure, MountedSession, mount};
pub use notify::{Notifier, PollHandle};
pub use session::{
    Carrier, End, Session, SessionConfig, SessionError, SessionHandle, Threads, Transport,
    UringConfig, UringRefusal, ring_availability,
};
pub use thrufs_abi::layout;
pub use thrufs_abi::layout::Attr;
pub use thrufs_abi::opcode::Repeat;
pub use thrufs_abi::{
    BackingId, BadName, FileHandle, Generation, InitFlags, LockOwner, Name, NodeId, Opcode,
    OpenReplyFlags, Unique,
};
pub use window::{MapArgs, MappedFile, WindowChange, WindowCoverage, WindowReply};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

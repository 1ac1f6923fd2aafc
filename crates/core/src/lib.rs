//! Under construction.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod attributes;
mod context;
mod data;
mod directory;
mod dispatch;
mod errno;
mod features;
mod file_system;
mod interrupt;
pub mod metrics;
pub mod mount;
mod mounted;
mod notify;
mod reply;
pub mod session;
mod transport;

pub use attributes::{
    Attributes, CopyArgs, Entry, ExtendedAttributes, FileSystemStatistics, LockArgs, NewNode,
    OpenArgs, Opened, ReadArgs, ReleaseArgs, SetAttr, SetTime, Timestamp, WriteArgs,
};
pub use context::Context;
pub use data::{LowerFile, NoWait, ReadAnswer, ReadReply, WriteSource};
pub use directory::{DirectorySink, EntryKind};
pub use dispatch::{Dispatcher, FileReply, InitFailure, Outcome, Wait};
pub use errno::{Errno, Result};
pub use features::{Features, Negotiation, Refusal};
pub use file_system::FileSystem;
pub use interrupt::{InterruptToken, Interrupts};
pub use metrics::{Metrics, Snapshot};
pub use mount::{MountError, MountOptions};
pub use mounted::{MountFailure, MountedSession, mount};
pub use notify::{Notifier, PollHandle};
pub use session::{End, Session, SessionConfig, SessionError, SessionHandle, Threads};
pub use thrufs_abi::layout;
pub use thrufs_abi::{
    BackingId, FileHandle, Generation, InitFlags, LockOwner, Name, NodeId, Opcode, OpenReplyFlags,
    Unique,
};

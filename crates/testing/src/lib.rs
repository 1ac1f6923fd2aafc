//! Tests for file systems written with [`thrufs`], without a virtual machine.
//!
//! **Calls without a kernel.** A [`Client`] sends requests to a file system as a kernel would, with any caller's
//! ids, or bytes that no kernel would send. A [`Carrier`] transports them: [`InProcess`] through the dispatch
//! that serves a mount, or another.
//!
//! ```
//! use std::sync::Arc;
//! use thrufs::{Attributes, Context, Entry, Errno, FileHandle, FileSystem, Name, NodeId, Result};
//! use thrufs_testing::Client;
//!
//! /// Has nothing in it, not even a root.
//! struct Empty;
//!
//! impl FileSystem for Empty {
//!     fn lookup(&self, _: &Context<'_>, _: NodeId, _: Name<'_>) -> Result<Entry> {
//!         Err(Errno::ENOENT)
//!     }
//!
//!     fn getattr(&self, _: &Context<'_>, _: NodeId, _: Option<FileHandle>) -> Result<Attributes> {
//!         Err(Errno::ENOENT)
//!     }
//! }
//!
//! let client = Client::connect(Arc::new(Empty)).unwrap();
//! let found = client.root().lookup(NodeId::ROOT, b"name");
//! assert_eq!(found.unwrap_err(), Errno::ENOENT);
//! ```
//!
//! **The POSIX cases.** [`suite::run`] runs a list of cases on a mounted file system, by system calls. It is the
//! `main` of a test program with `harness = false`, and needs root, because cases act as several users.
//! [`Setup::lacks`] names what the file system does not support.
//!
//! ```no_run
//! use std::path::Path;
//! use std::process::ExitCode;
//! use std::sync::Arc;
//! use thrufs_testing::{Need, Setup, Tree, suite};
//!
//! /// My file system, which is mounted already.
//! struct Mine;
//!
//! impl Setup for Mine {
//!     fn name(&self) -> String {
//!         "mine".to_owned()
//!     }
//!
//!     fn start(&self) -> Result<Arc<dyn Tree>, String> {
//!         Ok(Arc::new(Mine))
//!     }
//!
//!     fn lacks(&self, need: Need) -> Option<&'static str> {
//!         matches!(need, Need::Acl).then_some("there are no ACLs")
//!     }
//! }
//!
//! impl Tree for Mine {
//!     fn root(&self) -> &Path {
//!         Path::new("/mnt/mine")
//!     }
//!
//!     fn beneath(&self) -> &Path {
//!         self.root()
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     suite::run(std::env::args(), [Arc::new(Mine) as Arc<dyn Setup>])
//! }
//! ```
//!
//! The cases do not depend on the server. So each also runs natively, on a file system of the kernel, which
//! validates the case itself. Other tests can use their tools: [`user`], [`process`] and the calls of [`fence`].

#![deny(unsafe_code)]
// The whole crate is tests: a failed step must stop the case, and the panic is its report.
#![allow(clippy::unwrap_used)]

mod attributes;
mod calls;
mod carrier;
mod client;
mod late;
mod listing;
mod random;
mod setup;
mod shape;
mod waiting;

pub mod fence;
pub mod helper;
pub mod memory;
pub mod posix;
pub mod process;
pub mod steps;
pub mod suite;
pub mod user;

pub use attributes::xattrs;
pub use carrier::{Carrier, InProcess};
pub use client::{
    Caller, Client, ClientError, OFFERED_BY_GUESTS, OFFERED_ON_DEV_FUSE, OFFERED_WITH_WINDOW,
};
pub use late::{LateCall, LateCalls, When};
pub use listing::Listed;
pub use random::Random;
pub use setup::{Need, Setup, Tree};
pub use shape::{ReplyLayout, Shape};
pub use waiting::{PATIENCE, StopAll, wait_until, while_repeating};

//! A guest without a machine: a FUSE client of virtio-fs.
//!
//! [`FrontEnd`] carries the requests of a [`Client`] to any server of virtio-fs behind a vhost-user socket,
//! Thrufs or another. The front end is what a virtual machine is to the server: it makes the memory, the
//! rings and the signals, and keeps as many requests in flight on as many queues as one likes.
//!
//! Tests, benchmarks and fuzzers drive servers with it; [`misbehave`] does what no guest should, and
//! [`relay`] mounts a server on this machine, for programs that know only paths; [`tool`] is the library
//! of the program `thrufs-client`.
//!
//! ```no_run
//! use thrufs_abi::NodeId;
//! use thrufs_client::{Client, FrontEnd, FrontEndConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let front_end = FrontEnd::connect("/run/share.socket", &FrontEndConfig::default())?;
//! let client = Client::mount(front_end)?;
//! let root = client.root();
//! let file = root.lookup(NodeId::ROOT, b"hello")?;
//! println!("{} bytes", file.attr.size);
//! root.forget(NodeId(file.nodeid), 1);
//! client.unmount();
//! # Ok(())
//! # }
//! ```
//!
//! A running front end can move to another server, with all that is under way
//! ([`FrontEnd::migrate_to`]).
//!
//! Many requests in flight are kept on a [`Queue`], without blocking calls:
//!
//! ```no_run
//! # use thrufs_client::{Client, FrontEnd, FrontEndConfig, FIRST_REQUEST_QUEUE};
//! # use thrufs_abi::layout::GetattrIn;
//! # use thrufs_abi::{NodeId, Opcode};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let client = Client::mount(FrontEnd::connect("/x", &FrontEndConfig::default())?)?;
//! let mut queue = client.carrier().queue(FIRST_REQUEST_QUEUE).ok_or("no such queue")?;
//! for _ in 0..16 {
//!     let request = client.root().request(Opcode::Getattr, NodeId::ROOT);
//!     queue.submit_request(&request.arg(&GetattrIn::default()).finish())?;
//! }
//! queue.notify()?;
//! while queue.in_flight() > 0 {
//!     queue.wait(None)?;
//!     while let Some(completion) = queue.poll()? {
//!         println!("{:?}", queue.reply_header(&completion));
//!         queue.free(completion);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod front_end;

pub mod misbehave;
pub mod relay;
pub mod tool;

pub use front_end::{
    Agreed, Completion, ConnectError, Data, ExchangeError, FIRST_REQUEST_QUEUE, FrontEnd,
    FrontEndConfig, GuestMemory, HIGH_PRIORITY, MigrateError, Migrated, Parts, ProtocolFeatures,
    Queue, QueueError, QueueGuard, RawDescriptor, StateError, Step, SubmitError, Token,
    UsedElement, VhostLink, descriptor_flags, features,
};
pub use thrufs_testing::{Caller, Client};

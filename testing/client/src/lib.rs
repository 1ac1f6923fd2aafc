//! A FUSE client of virtio-fs, without a virtual machine.
//!
//! [`FrontEnd`] sends the requests of a [`Client`] to any virtio-fs server behind a vhost-user socket, Thrufs
//! or another. As a virtual machine does, it makes the memory, the rings and the eventfds; it keeps any number
//! of requests in flight on any number of queues.
//!
//! Tests, benchmarks and fuzzers drive servers with it. [`misbehave`] breaks the protocol on purpose;
//! [`relay`] mounts a server on this machine, for programs that use paths; [`tool`] is the library of the
//! program `thrufs-client`.
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
//! A running front end can migrate to another server ([`FrontEnd::migrate_to`]). A [`Queue`] keeps many
//! requests in flight, without blocking calls:
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

mod dax;
mod front_end;
mod relay;

pub mod misbehave;
pub mod tool;

pub use dax::{DAX_RANGE_BYTES, DaxClient, DaxError, SETUPMAPPING_READ, SETUPMAPPING_WRITE};
pub use front_end::{
    FIRST_REQUEST_QUEUE, FrontEnd, FrontEndConfig, GuestMemory, MigrateError, Window,
    WindowBehaviour, WindowConfig,
};
pub use thrufs_testing::{Caller, Client};

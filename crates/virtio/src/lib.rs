//! A virtio-fs device: FUSE between the kernel of a virtual machine and a file system of this host, over
//! the vhost-user protocol.
//!
//! The virtual machine monitor is the *front end*: it connects to a socket, hands over the guest's memory
//! and says where in it the queues are. From then on the guest and a [`Device`] talk by that memory alone.
//!
//! ```no_run
//! use std::os::unix::net::UnixListener;
//! use std::sync::Arc;
//! use thrufs_virtio::{Device, DeviceConfig, DeviceError};
//! # use thrufs::{Attributes, Context, Entry, Errno, FileHandle, FileSystem, Name, NodeId};
//! # struct MyFileSystem;
//! # impl FileSystem for MyFileSystem {
//! #     fn lookup(&self, _: &Context, _: NodeId, _: Name) -> thrufs::Result<Entry> { Err(Errno::ENOENT) }
//! #     fn getattr(&self, _: &Context, _: NodeId, _: Option<FileHandle>) -> thrufs::Result<Attributes> {
//! #         Err(Errno::EIO)
//! #     }
//! # }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::new(|| Ok(Arc::new(MyFileSystem)), DeviceConfig::default())?;
//! let listener = UnixListener::bind("guest.sock")?;
//! for stream in listener.incoming() {
//!     device.serve(stream?)?; // One virtual machine after the other.
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | part | what it is for |
//! |---|---|
//! | [`Device`] | one front end at a time, from its connection to its end |
//! | [`MakeFileSystem`] | a file system for each session of a guest |
//! | [`DeviceConfig`], [`Tag`] | bounds, and the name by which a guest mounts it |
//! | [`Caller`] | a thread of the front end, whose CPU a queue may share |
//! | [`DeviceHandle`] | counters, and the way to end it |
//! | [`mod@queue`], [`memory`] | virtqueues in memory of a guest, for fuzzing and for other devices |
//!
//! A session can move to another device while its guest runs: [`device_state`] says in what form.
//!
//! What a guest or a front end sends may be anything: see [`mod@queue`] and [`memory`].

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod callers;
mod config;
mod control;
mod crew;
mod desk;
mod device;
pub mod device_state;
mod error;
mod frame;
mod journal;
mod keeper;
mod line;
pub mod memory;
mod patience;
mod post;
pub mod queue;
mod serving;
mod session;
mod slot;
mod steward;
mod tag;
mod transfer;
mod vring;

pub use callers::{CALLERS_MAX, Caller};
pub use config::{ConfigError, DeviceConfig, REQUEST_QUEUES_MAX};
pub use device::{ConnectionOptions, Device, DeviceHandle, Served};
pub use error::DeviceError;
pub use journal::Journal;
pub use keeper::Keeper;
pub use session::MakeFileSystem;
pub use tag::{Tag, TagError};

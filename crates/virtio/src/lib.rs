//! A virtio-fs device: FUSE between the kernel of a virtual machine and a file system of this host, over
//! the vhost-user protocol.
//!
//! The virtual machine monitor is the *front end*: it connects to a socket and shares the guest's memory and
//! the addresses of the queues. Requests then go through that memory alone.
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
//!     device.serve(stream?)?; // One virtual machine at a time.
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | item | purpose |
//! |---|---|
//! | [`Device`] | serves a front end, from its connection to its end |
//! | [`MakeFileSystem`] | makes a file system for each session of a guest |
//! | [`DeviceConfig`], [`Tag`] | limits, and the name by which a guest mounts it |
//! | [`Caller`] | a thread of the front end, with which a queue's thread may share a CPU |
//! | [`DeviceHandle`] | counters, and shutdown |
//! | [`mod@queue`], [`memory`] | virtqueues in guest memory, public for fuzzing and other devices |
//!
//! | module | what it does |
//! |---|---|
//! | `device`, `connection`, `control`, `config`, `tag` | one front end: its connection, its messages, what it may set |
//! | `shared` | what the threads of a connection share |
//! | `memory`, `queue`, `vring` | guest memory; virtqueues in it; a queue as the front end sets it up |
//! | `serving`, `queue_state`, `mailbox` | the thread of a queue, what it owns, messages to it |
//! | `queue_helpers`, `patience` | further threads for a busy queue; spinning before sleep |
//! | `stall_monitor`, `callers` | sharing the CPU of the virtual CPU that asks |
//! | `slot`, `frame`, `carry_out`, `session` | one request, on any thread; INIT and DESTROY; the sessions of a guest |
//! | `journal`, `vhost_proxy` | requests in flight, and the front end's connection, for the next worker |
//! | `wire` | the format of vhost-user messages that are forwarded or sent here |
//! | `window` | files that the front end maps into the guest's address space (DAX) |
//! | `device_state`, `transfer` | migration |
//! | `error` | why a device cannot serve |
//!
//! A session can migrate to another device while its guest runs; its format is in [`device_state`]. All input
//! of guests and front ends is untrusted: see [`mod@queue`] and [`memory`].

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod callers;
mod carry_out;
mod config;
mod connection;
mod control;
mod device;
pub mod device_state;
mod error;
mod frame;
mod journal;
mod limits;
mod mailbox;
pub mod memory;
mod patience;
pub mod queue;
mod queue_helpers;
mod queue_state;
mod serving;
mod session;
mod shared;
mod slot;
mod stall_monitor;
mod tag;
mod transfer;
mod vhost_proxy;
mod vring;
mod window;
mod wire;

pub use callers::{CALLERS_MAX, Caller};
pub use config::{ConfigError, DeviceConfig};
pub use device::{ConnectionOptions, Device, DeviceHandle, Served};
pub use error::DeviceError;
pub use journal::Journal;
pub use limits::REQUEST_QUEUES_MAX;
pub use session::MakeFileSystem;
pub use tag::{Tag, TagError};
pub use vhost_proxy::{ProxyState, VhostProxy};

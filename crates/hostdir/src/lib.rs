//! A directory of the host, served to FUSE clients.
//!
//! [`HostDir`] implements [`thrufs::FileSystem`] on a directory: everything that Linux can ask of a
//! file system, answered by the file system beneath, with its own error numbers.
//!
//! | room | what it does |
//! |---|---|
//! | `config` | how a directory is served |
//! | `file_system` | the doors: one method per request |
//! | `host` | reaching an inode: lookup, descriptors, opening |
//! | `nodes`, `slots`, `inode`, `identity` | the inodes that the kernel knows |
//! | `descriptors` | the budget of descriptors |
//! | `mounts` | the mounts that the tree is made of |
//! | `credentials` | as whom a thread acts |
//! | `datapath` | by which way the data of an open file go |
//! | `open` | opening files |
//! | `lookup`, `create`, `attributes`, `files`, `directories`, `xattrs`, `locks` | the requests |
//! | `housekeeping` | letting go of what is idle |
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod attributes;
mod config;
mod create;
mod credentials;
mod datapath;
mod descriptors;
mod directories;
mod file_system;
mod files;
mod host;
mod housekeeping;
mod identity;
mod inode;
mod locks;
mod lookup;
mod mounts;
mod nodes;
mod open;
mod slots;
mod statistics;
mod xattrs;

pub use config::{CacheMode, Config, ConfigError, IdMap, IdRange, Locks};
pub use datapath::DataPath;
pub use host::{HostDir, SetupError};
pub use mounts::{Habits, Handles};
pub use statistics::Statistics;

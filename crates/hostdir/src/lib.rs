//! A directory of the host, served to FUSE clients.
//!
//! [`HostDir`] implements [`thrufs::FileSystem`] on a directory: requests are answered by the lower file
//! system, with its own error numbers. POLL, BMAP and ioctls other than those on inode flags are not
//! implemented, DAX mappings only on a device that has a window. The kernel above checks permissions; what it
//! does not check, or checks by outdated attributes, is listed in `docs/security/requests.md`.
//!
//! Imports run one way, down this table:
//!
//! | module | what it does |
//! |---|---|
//! | `file_system` | the trait `FileSystem`: one method per request |
//! | `succession` | resuming a session of another process |
//! | `requests` | requests on names and attributes: lookup, create, rename, attributes, ACLs, owners, `explain` |
//! | `dropping` | dropping what is cached, on request |
//! | `host` | the parts of a served directory, and how they are made |
//! | `files` | open files and directories: data paths, passthrough, cached versions, privileges, locks |
//! | `follow` | what changes beneath is told to the kernel above |
//! | `judge` | what the active policy says of a node, a name and a caller; the audit log |
//! | `tree` | inodes, their names, descriptors and mounts; from an inode to a descriptor |
//! | `filter` | removing metadata from what readers see of a file |
//! | `ledger` | state that outlives a process that dies |
//! | `credentials`, `quota` | ids and capabilities of serving threads; the quota of one user |
//! | `config`, `resources` | how a directory is served, and the live objects that it uses |
//! | `explanation`, `statistics` | how a file is served, in words; counts |
//!
//! The language of an operator's rules is the crate `thrufs_policy`, the formats of photographs
//! `thrufs_redact`.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod chunks;
mod config;
mod credentials;
mod dropping;
mod explanation;
mod file_system;
mod files;
mod filter;
mod follow;
mod host;
mod identity;
mod ids;
mod judge;
mod ledger;
mod printable;
mod quota;
mod requests;
mod resources;
mod setup_error;
mod slots;
mod stat;
mod statistics;
mod succession;
mod tree;

pub use config::{
    CacheMode, Config, ConfigError, FileHandles, FollowMode, IdMap, IdRange, Locks, Migration,
    MigrationMode, MigrationOnError, OpenMode, Translation, TranslationError, XattrMap,
    XattrMapError,
};
pub use dropping::DroppedCaches;
pub use explanation::{CacheState, Explanation, FileKind, LowerState, NodeState, Opens, WindowUse};
pub use follow::MountTable;
pub use host::HostDir;
pub use judge::{AuditLog, Programs};
pub use ledger::{FdStore, Ledger};
pub use printable::{printable, printable_json};
pub use requests::EXPLAINED_DEPTH_MAX;
pub use resources::Resources;
pub use setup_error::SetupError;
pub use statistics::{DaxCounts, Following, Statistics};
pub use thrufs_policy as policy;
pub use thrufs_redact as redact;
pub use tree::{Handles, MountProperties};

//! A directory of the host, served to FUSE clients.
//!
//! [`HostDir`] implements [`thrufs::FileSystem`] on a directory: requests are answered by the lower file
//! system, with its own error numbers. POLL, BMAP, DAX mappings and ioctls other than those on inode flags
//! are not implemented. The kernel above checks permissions; what it does not check, or checks by outdated
//! attributes, is listed in `docs/security/requests.md`.
//!
//! | module | what it does |
//! |---|---|
//! | `config`, `resources` | how a directory is served, and the live objects that it uses |
//! | `file_system` | the trait `FileSystem`: one method per request |
//! | `host` | reaching an inode: lookup, descriptors, opening |
//! | `nodes`, `slots`, `inode`, `identity` | the inodes that the kernel has looked up |
//! | `descriptor_limits`, `descriptors`, `listings`, `quota` | how descriptors are divided, their cache, the quota of one user |
//! | `mounts` | the mounts of the served tree |
//! | `credentials` | the ids and capabilities of serving threads |
//! | `datapath` | the data path of an open file: passthrough, cached, direct, filtered |
//! | `admission` | checks before a file is opened for passthrough |
//! | `open` | opening files |
//! | `acl` | modes for a kernel above that does not see ACLs |
//! | `ownership` | changes that only an owner may make |
//! | `privileges` | set-id bits and capabilities that a change removes |
//! | `versions` | whether the kernel may keep cached data from one open to the next |
//! | `lookup`, `create`, `rename`, `attributes`, `files`, `directories`, `xattrs`, `locks` | the requests |
//! | `retries` | files that are removed between two requests of one call |
//! | `deadlock` | cycles of processes that wait for shared locks |
//! | `labels` | security labels of new files |
//! | `rules` | applying the active policy (`thrufs_policy`) to requests |
//! | `names` | the names of inodes, for rules on paths |
//! | `filter` | what readers see of a file from which metadata is removed |
//! | `housekeeping`, `idle_expiry` | releasing idle submounts |
//! | `translation`, `xattr_map` | mapping ids and names of extended attributes to the host's |
//! | `succession` | resuming a session of another process |
//! | `ledger`, `strongbox`, `keeping` | state that outlives a process that dies |
//! | `explain`, `explanation`, `statistics` | reporting how a file is served; counts |
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod acl;
mod admission;
mod attributes;
mod config;
mod create;
mod credentials;
mod datapath;
mod deadlock;
mod descriptor_limits;
mod descriptors;
mod directories;
mod explain;
mod explanation;
mod file_system;
mod files;
mod filter;
mod host;
mod housekeeping;
mod identity;
mod idle_expiry;
mod inode;
mod keeping;
mod labels;
mod ledger;
mod listings;
mod locks;
mod lookup;
mod mounts;
mod names;
mod nodes;
mod open;
mod ownership;
mod privileges;
mod quota;
mod rename;
mod resources;
mod retries;
mod rules;
mod slots;
mod statistics;
mod strongbox;
mod succession;
mod translation;
mod versions;
mod xattr_map;
mod xattrs;

pub use config::{CacheMode, Config, ConfigError, FileHandles, IdMap, IdRange, Locks};
pub use explain::EXPLAINED_DEPTH_MAX;
pub use explanation::{
    CacheState, CacheWord, ExplainedDataPath, Explanation, FileKind, LowerState, NodeState, Opens,
};
pub use host::{HostDir, SetupError};
pub use ledger::Ledger;
pub use mounts::{Handles, MountProperties};
pub use resources::Resources;
pub use rules::{AuditLog, Programs};
pub use statistics::Statistics;
pub use strongbox::Strongbox;
pub use succession::{Migration, MigrationMode, MigrationOnError};
pub use thrufs_policy as policy;
pub use thrufs_redact as redact;
pub use translation::{Translation, TranslationError};
pub use xattr_map::{XattrMap, XattrMapError};

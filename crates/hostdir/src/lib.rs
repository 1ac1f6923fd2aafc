//! A directory of the host, served to FUSE clients.
//!
//! [`HostDir`] implements [`thrufs::FileSystem`] on a directory: what Linux asks by FUSE is answered by
//! the file system beneath, with its own error numbers. Not answered are POLL, BMAP and DAX mappings, and
//! ioctls but those on inode flags. It relies on the kernel above to check permissions; what that does not
//! check, or checks by what it was told last, stands in `docs/security/requests.md`.
//!
//! | room | what it does |
//! |---|---|
//! | `config` | how a directory is served |
//! | `file_system` | the doors: one method per request |
//! | `host` | reaching an inode: lookup, descriptors, opening |
//! | `nodes`, `slots`, `inode`, `identity` | the inodes that the kernel knows |
//! | `descriptors`, `listings`, `shares` | the budgets of descriptors, and what one user may hold |
//! | `mounts` | the mounts that the tree is made of |
//! | `credentials` | as whom a thread acts |
//! | `datapath` | by which way the data of an open file go |
//! | `admission` | what is looked at before a file goes straight through |
//! | `open` | opening files |
//! | `acl` | modes where the kernel above knows no ACLs |
//! | `ownership` | changes that only an owner may make |
//! | `privileges` | what a file loses when it is changed |
//! | `lookup`, `create`, `rename`, `attributes`, `files`, `directories`, `xattrs`, `locks` | the requests |
//! | `labels` | security labels of what is made |
//! | `policy` | the language of an operator's rules: what is hidden, denied, read-only, redacted |
//! | `rules` | asking the policy in force about what clients do |
//! | `names` | the names of inodes, for rules on paths |
//! | `redact`, `filter` | taking out of files what readers are not to see |
//! | `housekeeping`, `idleness` | letting go of mounts beneath that nobody uses |
//! | `translation`, `xattr_map` | other ids and other names of attributes on the host |
//! | `succession` | going on with a session that another process began |
//! | `ledger`, `strongbox`, `keeping` | what outlives the process, should it die |
//! | `explain`, `explanation` | telling how a file is served |
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
pub mod policy;
mod privileges;
mod quota;
pub mod redact;
mod rename;
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
    CacheState, CacheWord, DataPath, Explanation, FileKind, LowerState, NodeState, Opens,
};
pub use host::{HostDir, SetupError};
pub use ledger::Ledger;
pub use mounts::{Handles, MountProperties};
pub use rules::{AuditLog, Programs};
pub use statistics::Statistics;
pub use strongbox::Strongbox;
pub use succession::{Migration, MigrationMode, MigrationOnError};
pub use translation::{Translation, TranslationError};
pub use xattr_map::{XattrMap, XattrMapError};

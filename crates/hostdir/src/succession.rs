//! Resumes a session that another process began.
//!
//! A client identifies inodes and open files by the numbers that it was given. So a resuming process must
//! use the same numbers for the same things. There are two ways:
//!
//! * [`save`] and [`restore`]: the process is alive and writes its state for another one, which may be on
//!   another machine (live migration).
//! * [`recover`]: the process is dead. Its [ledger](crate::ledger) is read.
//!
//! Either way the tables are [rebuilt](rebuild): nodes under their ids with their lookups, open files under
//! their handles, opened again, locks taken again. Ids that were freed are not given again, so that no id
//! changes its meaning for a client.
//!
//! **How inodes are found** on the other side: by their *paths*, where the tree has the same names there
//! (shared, or a copy), or by their *file handles*, on the same file system. An inode that is not found
//! answers every request with ESTALE, unless the whole restore is to fail then.
//!
//! **Handles and trust.** A path never leads out of the served tree. A file handle leads to any file of the
//! file system, and the sender of a state chooses them. An operator who does not trust the carrier of
//! states (a machine's manager, commonly) leaves [`Migration::accept_handles`] off.

mod format;
mod paths;
mod rebuild;
mod recover;
mod restore;
mod save;

pub(crate) use locks::{Suspended, give_up_ranges};

use serde::{Deserialize, Serialize};

/// How inodes are identified in a saved state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigrationMode {
    /// By their paths. Works with another machine that has the same tree, but not for inodes without a
    /// name.
    #[default]
    FindPaths,
    /// By their file handles, for the same file system. Submounts, and inodes without handles, are
    /// identified by path all the same.
    FileHandles,
}

/// What happens to a session if parts of it are not found on the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigrationOnError {
    /// The restore fails.
    #[default]
    Abort,
    /// It is resumed. The client gets ESTALE for the missing parts.
    GuestError,
}

/// How a session is saved for another process, and how one is restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    /// How inodes are identified in a saved session.
    pub mode: MigrationMode,
    /// What happens to a restored session with missing parts.
    pub on_error: MigrationOnError,
    /// Send file handles along with paths, by which a receiver with the same file system verifies that it
    /// found the same inodes.
    pub verify_handles: bool,
    /// Check every path once more when all are found, for files that were moved meanwhile.
    pub confirm_paths: bool,
    /// Accept states in which inodes are identified by file handles.
    pub accept_handles: bool,
}

impl Default for Migration {
    fn default() -> Migration {
        Migration {
            mode: MigrationMode::default(),
            on_error: MigrationOnError::default(),
            verify_handles: false,
            confirm_paths: false,
            accept_handles: true,
        }
    }
}

//! How a session is given to another process, and taken from one.

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
#[serde(default, deny_unknown_fields)]
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

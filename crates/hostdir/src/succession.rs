//! Going on with a session that another process began.
//!
//! A client names inodes and open files by the numbers that it was given, and it cannot be told others.
//! So whoever goes on with a session must know the same ones for the same things. There are two ways:
//!
//! * [`save`] and [`restore`]: the process lives and writes down what it knows, for a successor that may be
//!   on another machine (live migration).
//! * [`recover`]: the process is dead. What it [noted](crate::ledger) is read.
//!
//! Either way the tables are [built again](rebuild): nodes under their ids with their lookups, open files
//! under their handles, opened anew, locks taken anew. Ids that were given before and are free now are not
//! given again, so that nothing that a client remembers comes to mean something else.
//!
//! **How inodes are found** on the other side: by their *paths*, where the tree has the same names there
//! (shared, or a copy), or by their *file handles*, where it is the same file system. What is not found
//! becomes an inode that answers every request with ESTALE, unless the whole is to fail then.
//!
//! **Handles and trust.** A path never leads out of the tree that is served. A file handle leads to any
//! file of the file system, and which ones a state has is up to whoever wrote it. So whoever does not
//! trust those who carry states (a machine's manager, commonly) has them refused:
//! [`Migration::accept_handles`].

mod format;
mod locks;
mod paths;
mod rebuild;
mod recover;
mod restore;
mod save;

pub(crate) use locks::{Suspended, give_up_ranges};

/// How inodes are named in a saved state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MigrationMode {
    /// By their paths. Works to another machine with the same tree, and finds nothing that has no name.
    #[default]
    FindPaths,
    /// By their file handles, for a successor with the same file system. Mounts beneath the source, and
    /// inodes that have no handles, go by path nevertheless.
    FileHandles,
}

/// What becomes of a session when something of it is not found on the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MigrationOnError {
    /// Nobody goes on with it there.
    #[default]
    Abort,
    /// It is gone on with. The client gets ESTALE for what was not found.
    GuestError,
}

/// How a session leaves for another process, and how it is received from one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// How inodes are named when the session leaves.
    pub mode: MigrationMode,
    /// What becomes of a session that is received.
    pub on_error: MigrationOnError,
    /// Send file handles along with paths, by which the receiver, if it has the same file system, makes
    /// sure that it finds the same inodes.
    pub verify_handles: bool,
    /// Look at every path once more when all are found, in case others move files meanwhile.
    pub confirm_paths: bool,
    /// Accept states in which inodes are named by file handles.
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

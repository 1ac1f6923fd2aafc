//! Why a directory cannot be served.

use crate::config::ConfigError;
use std::io;
use std::path::PathBuf;
use thrufs::Errno;

/// Why a directory cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The source cannot be opened.
    #[error("cannot open the directory {path} to serve it: {source}")]
    Source {
        /// The path as it was given.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The source is not a directory.
    #[error("{0} is not a directory: only directories can be served")]
    NotADirectory(PathBuf),
    /// Two options exclude each other.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// `FileHandles::Mandatory`, and there are none.
    #[error(
        "the source has no file handles that this process may open (inode_file_handles=mandatory); it \
         needs a file system that has some, and CAP_DAC_READ_SEARCH"
    )]
    NoHandles,
    /// The system refused something that serving needs.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

pub(crate) fn system(what: &'static str) -> impl Fn(Errno) -> SetupError {
    move |errno| SetupError::System {
        what,
        source: errno.into(),
    }
}

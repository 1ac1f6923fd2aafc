//! Why a command failed.

use crate::front_end::ConnectError;
use crate::relay::RelayError;
use std::io;
use std::path::PathBuf;
use thrufs::Errno;
use thrufs_testing::ClientError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// No connection.
    #[error("{}: {source}", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why.
        source: ConnectError,
    },
    /// No session.
    #[error("{}: {source}", socket.display())]
    Mount {
        /// The socket.
        socket: PathBuf,
        /// Why.
        source: ClientError,
    },
    /// The share could not be mounted, or the mount has failed.
    #[error("{}: {source}", target.display())]
    Relay {
        /// Where.
        target: PathBuf,
        /// Why.
        source: RelayError,
    },
    /// The input cannot be read, or output not be written.
    #[error("input and output: {0}")]
    Io(#[from] io::Error),
    /// The arguments are invalid.
    #[error("{0}")]
    Usage(String),
    /// A measurement failed.
    #[error("{0}: {1}")]
    Row(String, Errno),
}

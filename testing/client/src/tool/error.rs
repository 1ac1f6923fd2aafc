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
    /// A call failed.
    #[error(":{path}: {errno}")]
    Share {
        /// The path in the share.
        path: String,
        /// The error of the call.
        errno: Errno,
    },
    /// The share could not be mounted, or the mount has failed.
    #[error("{}: {source}", target.display())]
    Relay {
        /// Where.
        target: PathBuf,
        /// Why.
        source: RelayError,
    },
    /// A local file failed.
    #[error("{}: {source}", path.display())]
    Local {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// The arguments are invalid.
    #[error("{0}")]
    Usage(String),
    /// A measurement failed.
    #[error("{target}: {row}: {problem}")]
    Bench {
        /// The name of the server.
        target: String,
        /// The name of the row.
        row: String,
        /// Why.
        problem: String,
    },
}

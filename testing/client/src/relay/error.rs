//! Why a relay fails.

use crate::front_end::{ExchangeError, QueueError};
use std::io;
use thrufs::mount::MountError;

/// Why a relay cannot start, or has failed.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// It could not be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The server does not answer INIT.
    #[error("INIT was not answered: {0}")]
    Greeting(#[from] ExchangeError),
    /// The server refuses INIT, or its reply is malformed.
    #[error("the server refused INIT with error {0}")]
    Refused(i32),
    /// The queues of the front end are too short for the requests of a kernel.
    #[error("queues of {0} entries are too short: 8 are needed")]
    QueueSize(u16),
    /// The server has disconnected or broken a queue.
    #[error(transparent)]
    Server(#[from] QueueError),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The attempted action.
        what: &'static str,
        /// The error.
        source: io::Error,
    },
}

pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> RelayError {
    move |error| RelayError::System {
        what,
        source: error.into(),
    }
}

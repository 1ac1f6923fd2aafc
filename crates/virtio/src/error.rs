//! Why a device cannot serve, or has stopped.

use crate::config::ConfigError;
use std::io;

/// Why a device cannot serve, or has stopped.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Descriptors, or the handler of the signal that ends waits, could not be set up.
    #[error("cannot start serving: {0}")]
    Start(#[source] io::Error),
    /// The session of a process that died cannot be gone on with.
    #[error("cannot resume the guest's session: {0}")]
    Resume(#[source] io::Error),
    /// The front end broke the protocol, or asked for what is not there.
    #[error("cannot handle the front end's message: {0}")]
    Protocol(#[source] vhost::vhost_user::Error),
    /// A queue's thread panicked: a fault of this program.
    #[error("a thread that serves a queue failed")]
    QueueFailed,
    /// Requests were still in progress after the drain timeout. The file system's `destroy` is called when
    /// the last of them ends.
    #[error("requests do not end; {0} threads are still busy with them")]
    Stuck(usize),
}

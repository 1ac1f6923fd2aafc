//! Why a session fails.

use crate::dispatch::InitFailure;
use std::io;

/// Why a session could not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// INIT failed.
    #[error(transparent)]
    Init(#[from] InitFailure),
    /// The device failed.
    #[error("/dev/fuse failed: {0}")]
    Device(#[source] io::Error),
    /// Threads, memory or signals could not be set up.
    #[error("cannot start serving: {0}")]
    Start(#[source] io::Error),
    /// The kernel unmounted or the server shut down before INIT was answered.
    #[error("the session ended before it began")]
    Ended,
    /// The session of a process that died cannot be resumed.
    #[error("cannot go on with the session: {0}")]
    Resume(#[source] io::Error),
    /// INIT was not answered yet, or twice.
    #[error("a session is served once, after its handshake")]
    Misuse,
    /// Requests were still in progress when the time for their end was over. The file system's
    /// `destroy` was not called; the process should end.
    #[error("{0} threads are still busy with requests that do not end")]
    Stuck(usize),
}

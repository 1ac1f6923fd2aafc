//! The errors of `thrufs share`.

use crate::control::socket::ControlSocketError;
use crate::error::{CommandError, FAILURE, StartupError, USAGE};
use crate::listening::SocketError;
use crate::metrics::MetricsError;
use crate::options::OptionError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ShareError {
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error(transparent)]
    Startup(#[from] StartupError),
    #[error(
        "namespace_uidmap (--uid-map) is for ordinary users: root has every id; use translate_uid"
    )]
    NamespaceOfRoot,
    #[error("cannot share: {0}")]
    Socket(#[from] SocketError),
    #[error("no control socket: {0}; use control=PATH for another place, or control=none")]
    Control(#[from] ControlSocketError),
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// As the worker reported it.
    #[error("{0}")]
    Worker(String),
    #[error("the worker ended before it was ready; run it with --log=debug to see why")]
    WorkerGone,
    #[error("the worker died ({0})")]
    WorkerDied(String),
    #[error(
        "requests do not end, because the source does not answer: process {0} stays until it does"
    )]
    WorkerStuck(u32),
}

impl CommandError for ShareError {
    fn status(&self) -> u8 {
        match self {
            ShareError::Option(_) => USAGE,
            ShareError::Startup(error) => error.status(),
            _ => FAILURE,
        }
    }
}

//! The errors of `thrufs mount`, also of its server.

use super::DeadMount;
use crate::control::socket::ControlSocketError;
use crate::error::{CommandError, FAILURE, StartupError, USAGE};
use crate::metrics::MetricsError;
use crate::options::OptionError;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thrufs::MountError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum MountCommandError {
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error(transparent)]
    Startup(#[from] StartupError),
    #[error("only root may use the option `{0}`; drop it, or mount as root")]
    RootOnly(&'static str),
    #[error(
        "the mount point {mountpoint} is inside the source {source_path}, and the mount would contain \
         itself: mount as root, elsewhere, or on the source itself"
    )]
    Recursive {
        source_path: PathBuf,
        mountpoint: PathBuf,
    },
    #[error("the mount point {0} does not exist: make the directory first (mkdir)")]
    MountPointMissing(PathBuf),
    #[error("the mount point {0} is not a directory")]
    MountPointNotDirectory(PathBuf),
    #[error(
        "{0} is mounted already, by a user whose mount nobody else may enter; unmount it first \
         (`thrufs unmount {0}`)"
    )]
    Occupied(PathBuf),
    #[error(transparent)]
    Dead(#[from] DeadMount),
    #[error("no control socket: {0}; use control=PATH for another place, or control=none")]
    Control(#[from] ControlSocketError),
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    #[error(transparent)]
    Mount(#[from] MountError),
    /// As another process of the server reported it.
    #[error("{0}")]
    Server(String),
    #[error("the server ended before it was ready; run it with -f --log=debug to see why")]
    ServerGone,
    #[error("{what}; {}", after_death(.dead.as_deref()))]
    ServerDied { what: String, dead: Option<PathBuf> },
    #[error("requests to {mountpoint} do not end, because the source does not answer, or a program that \
             lists a directory does not go on; {}{}",
        after_death(.dead.then_some(mountpoint)),
        .left.map_or(String::new(), |pid| format!("; process {pid} stays until it does")))]
    Stuck {
        mountpoint: PathBuf,
        /// A process that cannot be killed.
        left: Option<u32>,
        dead: bool,
    },
    #[error("{1} did not answer within {seconds} s; the mount was given up", seconds = .0.as_secs())]
    NoAnswer(Duration, PathBuf),
    #[error("interrupted before it was mounted")]
    Interrupted,
}

impl CommandError for MountCommandError {
    fn status(&self) -> u8 {
        match self {
            MountCommandError::Option(_) => USAGE,
            MountCommandError::Startup(error) => error.status(),
            _ => FAILURE,
        }
    }
}

fn after_death(dead: Option<&Path>) -> String {
    match dead.map(Path::display) {
        None => "the mount was removed".to_owned(),
        Some(path) => format!(
            "the mount stays and returns ENOTCONN until it is unmounted (`thrufs unmount {path}`)"
        ),
    }
}

//! The directory that is served, by its path.

use crate::error::StartupError;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Adds the path to a system error.
pub(crate) fn unusable<E: Into<io::Error>>(path: &Path) -> impl Fn(E) -> StartupError {
    move |error| StartupError::Source {
        path: path.into(),
        source: error.into(),
    }
}

pub(crate) fn open(path: &Path) -> Result<OwnedFd, StartupError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT => StartupError::SourceMissing(path.into()),
        Errno::NOTDIR => StartupError::SourceNotDirectory(path.into()),
        other => unusable(path)(other),
    })
}

/// The path without symbolic links.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf, StartupError> {
    std::fs::canonicalize(path).map_err(unusable(path))
}

//! The directory that is served, by its path.

use crate::error::SetUpError;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Adds the path to a system error.
pub(crate) fn unusable<E: Into<io::Error>>(path: &Path) -> impl Fn(E) -> SetUpError {
    move |error| SetUpError::Source {
        path: path.into(),
        source: error.into(),
    }
}

pub(crate) fn open(path: &Path) -> Result<OwnedFd, SetUpError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT => SetUpError::SourceMissing(path.into()),
        Errno::NOTDIR => SetUpError::SourceNotDirectory(path.into()),
        other => unusable(path)(other),
    })
}

/// The path without symbolic links.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf, SetUpError> {
    std::fs::canonicalize(path).map_err(unusable(path))
}

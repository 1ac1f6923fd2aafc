//! The directory that is served.

use crate::error::{StartupError, system_at};
use crate::lookup;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Adds the path to a system error.
pub(crate) fn unusable<E: Into<io::Error>>(path: &Path) -> impl Fn(E) -> StartupError {
    system_at("open the source", path)
}

/// Opens it, and returns its path without symbolic links, too.
pub(crate) fn open(path: &Path) -> Result<(OwnedFd, PathBuf), StartupError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let opened = lookup::open(path, flags, Mode::empty());
    let directory = opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => StartupError::SourceMissing(path.into()),
        Some(Errno::NOTDIR) => StartupError::SourceNotDirectory(path.into()),
        _ => unusable(path)(error),
    })?;
    let real = lookup::path_of(&directory).map_err(unusable(path))?;
    Ok((directory, real))
}

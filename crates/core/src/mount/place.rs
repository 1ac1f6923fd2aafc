//! The mount point, open: what is checked is what is mounted on.

use super::error::MountError;
use rustix::fs::{FileType, Mode, OFlags, fstat, fstatfs};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// What is mounted on.
pub(super) struct Place<'a> {
    pub(super) directory: BorrowedFd<'a>,
    pub(super) name: &'a Path,
}

impl<'a> Place<'a> {
    pub(super) fn of(directory: &'a impl AsFd, name: &'a Path) -> Place<'a> {
        let directory = directory.as_fd();
        Place { directory, name }
    }

    pub(super) fn check(&self) -> Result<(), MountError> {
        // Attributes of a dead mount may be cached; statfs(2) is not.
        let asked = fstatfs(self.directory).and_then(|_| fstat(self.directory));
        let stat = asked.map_err(|errno| unusable_target(self.name, errno))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Ok(()),
            _ => Err(MountError::NotADirectory(self.name.into())),
        }
    }
}

pub(super) fn open_target(target: &Path) -> Result<OwnedFd, MountError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = rustix::fs::open(target, flags, Mode::empty());
    opened.map_err(|errno| unusable_target(target, errno))
}

fn unusable_target(target: &Path, errno: Errno) -> MountError {
    // Over io_uring, the last requests fail with one of the others.
    let dead = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];
    let source = if dead.contains(&errno) {
        io::Error::other("a dead FUSE mount is here (its server has ended): unmount it first")
    } else {
        errno.into()
    };
    MountError::Target {
        path: target.into(),
        source,
    }
}

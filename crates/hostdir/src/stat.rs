//! statx(2) of lower files, with the mask of each answer to a client.

use rustix::fs::{AtFlags, Statx, StatxFlags};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use thrufs::Result;

const MASK: StatxFlags = StatxFlags::BASIC_STATS;

pub(crate) fn stat_open(fd: impl AsFd) -> Result<Statx> {
    Ok(rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, MASK)?)
}

/// With the time of birth, which identifies an inode without a file handle.
pub(crate) fn stat_with_birth(fd: impl AsFd) -> Result<Statx> {
    let mask = MASK | StatxFlags::BTIME;
    Ok(rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, mask)?)
}

/// What stands under a name; symbolic links are not followed.
pub(crate) fn stat_name(parent_fd: BorrowedFd<'_>, name: &CStr) -> Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(rustix::fs::statx(parent_fd, name, flags, MASK)?)
}

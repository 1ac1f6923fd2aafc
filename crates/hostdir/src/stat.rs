//! statx(2) of lower files, with the mask of each answer to a client.

use rustix::fs::{AtFlags, Statx, StatxFlags};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use thrufs::Result;

pub(crate) fn stat_open(fd: impl AsFd) -> Result<Statx> {
    Ok(rustix::fs::statx(
        fd,
        c"",
        AtFlags::EMPTY_PATH,
        StatxFlags::BASIC_STATS,
    )?)
}

/// What stands under a name; symbolic links are not followed.
pub(crate) fn stat_name(parent_fd: BorrowedFd<'_>, name: &CStr) -> Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    Ok(rustix::fs::statx(
        parent_fd,
        name,
        flags,
        StatxFlags::BASIC_STATS,
    )?)
}

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

/// A number that differs when the content may differ, by size and times. Never 0.
pub(crate) fn content_version(stat: &Statx) -> u64 {
    let mut version = stat.stx_size;
    for time in [&stat.stx_mtime, &stat.stx_ctime] {
        for word in [time.tv_sec as u64, u64::from(time.tv_nsec)] {
            version = (version.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
    version.max(1)
}

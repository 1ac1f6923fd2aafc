//! Mode and size by `O_PATH` descriptor.
//!
//! Owner and times need nothing here: `rustix::fs::chownat` and `utimensat` take an `O_PATH`
//! descriptor with an empty path and `AtFlags::EMPTY_PATH`.
//!
//! # Safety
//! Only NUL-terminated paths that live across the call are given to the kernel.

#![allow(unsafe_code)]

use crate::proc_fd::Link;
use crate::raw::{check, check_int};
use rustix::fs::Mode;
use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// One number on every architecture that this crate compiles for (asm-generic and x86_64).
const SYS_FCHMODAT2: libc::c_long = 452;

/// Set once `fchmodat2` failed with ENOSYS (before Linux 6.6, or under a filter older than it).
static WITHOUT_FCHMODAT2: AtomicBool = AtomicBool::new(false);

/// Sets the permission bits (07777) of the inode behind `descriptor`, which may be `O_PATH`. The
/// kernel clears the set-group-id bit where the caller may not set it.
///
/// # Errors
/// EOPNOTSUPP for a symbolic link, EPERM, EROFS.
pub fn chmod(descriptor: impl AsFd, mode: u32) -> Result<()> {
    let descriptor = descriptor.as_fd();
    if !WITHOUT_FCHMODAT2.load(Ordering::Relaxed) {
        // SAFETY: the empty path ends in NUL.
        let answer = unsafe {
            libc::syscall(
                SYS_FCHMODAT2,
                descriptor.as_raw_fd(),
                c"".as_ptr(),
                mode & 0o7777,
                libc::AT_EMPTY_PATH,
            )
        };
        match check(answer) {
            Err(Errno::NOSYS) => WITHOUT_FCHMODAT2.store(true, Ordering::Relaxed),
            answer => return answer.map(drop),
        }
    }
    let mode = Mode::from_raw_mode(mode & 0o7777);
    rustix::fs::chmod(Link::of(descriptor).path(), mode)
}

/// Sets the size, bytes, of the file behind `descriptor`, which may be `O_PATH`; write permission
/// is checked as `truncate(2)` checks it.
///
/// # Errors
/// EISDIR, EINVAL for other than files and for sizes above `i64::MAX`, EFBIG, ETXTBSY, EACCES.
pub fn truncate(descriptor: impl AsFd, length: u64) -> Result<()> {
    let length = i64::try_from(length).map_err(|_| Errno::INVAL)?;
    let link = Link::of(descriptor.as_fd());
    // SAFETY: the path ends in NUL.
    check_int(unsafe { libc::truncate(link.path().as_ptr(), length) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ground::{directories, open};
    use rustix::fs::{AtFlags, OFlags, StatxFlags};
    use std::os::fd::OwnedFd;

    fn stat(descriptor: &OwnedFd) -> rustix::fs::Statx {
        let mask = StatxFlags::BASIC_STATS;
        rustix::fs::statx(descriptor, c"", AtFlags::EMPTY_PATH, mask).unwrap()
    }

    fn modes(place: &std::path::Path) {
        let path = place.join("file");
        drop(open(&path, OFlags::CREATE | OFlags::WRONLY));
        let file = open(&path, OFlags::PATH);
        for mode in [0o640, 0o4711, 0o1000, 0o177_7777] {
            chmod(&file, mode).unwrap();
            assert_eq!(u32::from(stat(&file).stx_mode) & 0o7777, mode & 0o7777);
        }
        let link = place.join("link");
        std::os::unix::fs::symlink("file", &link).unwrap();
        let refused = chmod(open(&link, OFlags::PATH), 0o600);
        assert_eq!(refused, Err(Errno::OPNOTSUPP));
        std::fs::remove_file(link).unwrap();
    }

    #[test]
    fn chmod_by_the_new_call_and_the_old() {
        for place in directories() {
            modes(place.path());
            let before = WITHOUT_FCHMODAT2.swap(true, Ordering::Relaxed);
            modes(place.path());
            WITHOUT_FCHMODAT2.store(before, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_number_is_that_of_libc() {
        #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
        assert_eq!(SYS_FCHMODAT2, libc::SYS_fchmodat2);
    }
}

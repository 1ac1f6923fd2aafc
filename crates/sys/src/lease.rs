//! Finds out whether a file is open elsewhere, by taking a lease on it (fcntl(2), `F_SETLEASE`).
//!
//! The kernel grants a read lease only on a file that is neither open for writing nor mapped writable, and
//! a write lease only on one that is open nowhere else. A conflicting open meanwhile waits until the lease
//! is released, which takes microseconds; only an open with `O_NONBLOCK` fails, with `EWOULDBLOCK`. This
//! process is then sent SIGIO, which [`prepare`] makes it ignore.
//!
//! # Safety
//! Both commands of fcntl(2) take a number and no pointer. SIG_IGN is no code of ours.

#![allow(unsafe_code)]

use crate::raw::check_int;
use crate::signal::{action_of, set_action};
use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Makes the process ignore SIGIO, which would end it, unless it has a handler. Called once before the
/// others.
pub fn prepare() -> Result<()> {
    let mut action = action_of(libc::SIGIO)?;
    if action.sa_sigaction == libc::SIG_DFL {
        action.sa_sigaction = libc::SIG_IGN;
        // SAFETY: ignoring needs no handler.
        unsafe { set_action(libc::SIGIO, &action) }?;
    }
    Ok(())
}

/// Whether the file of `file`, a descriptor for reading only, is open for writing.
///
/// # Errors
/// EACCES for another user's file without CAP_LEASE, EINVAL where the file system has no leases, and for
/// what is not a regular file. A `file` that is itself open for writing counts (EAGAIN).
pub fn has_writers(file: impl AsFd) -> Result<bool> {
    let file = file.as_fd().as_raw_fd();
    // SAFETY: no pointers, and the descriptor lives through the call.
    match check_int(unsafe { libc::fcntl(file, libc::F_SETLEASE, libc::F_RDLCK) }) {
        Err(Errno::AGAIN) => return Ok(true),
        taken => taken?,
    };
    // SAFETY: as above.
    match check_int(unsafe { libc::fcntl(file, libc::F_SETLEASE, libc::F_UNLCK) }) {
        // Another thread has tested the same open file, and released the lease of both.
        Ok(_) | Err(Errno::AGAIN) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A write lease: the file is open nowhere else, and opening it waits until this is dropped.
#[derive(Debug)]
pub struct Exclusive<'a>(BorrowedFd<'a>);

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        let file = self.0.as_raw_fd();
        // SAFETY: no pointers, and the descriptor lives as long as this.
        let _ = unsafe { libc::fcntl(file, libc::F_SETLEASE, libc::F_UNLCK) };
    }
}

/// Blocks further opens of the file of `file`, which is open for writing; nothing when it is open elsewhere
/// already. One at a time for one open file: leases do not count.
///
/// # Errors
/// As [`has_writers`].
pub fn exclusive(file: BorrowedFd<'_>) -> Result<Option<Exclusive<'_>>> {
    // SAFETY: no pointers, and the descriptor lives through the call.
    match check_int(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) }) {
        Err(Errno::AGAIN) => Ok(None),
        taken => taken.map(|_| Some(Exclusive(file))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ground::{FORKING, directory};
    use std::fs::{File, OpenOptions};
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn writers_are_found_and_leases_released() {
        prepare().unwrap();
        let _no_copies = FORKING
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let directory = directory();
        let path = directory.path().join("file");
        let writer = File::create(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert_eq!(has_writers(&reader), Ok(true));
        drop(writer);
        assert_eq!(has_writers(&reader), Ok(false));
        // A lease that was left would block this open.
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_NONBLOCK);
        let writer = options.open(&path).unwrap();
        assert!(exclusive(writer.as_fd()).unwrap().is_none(), "a reader");
        drop(reader);
        let lease = exclusive(writer.as_fd()).unwrap();
        assert!(lease.is_some());
        let other = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path);
        assert_eq!(other.unwrap_err().raw_os_error(), Some(libc::EWOULDBLOCK));
        drop(lease);
        File::open(&path).unwrap();
    }
}

//! Byte-range locks that belong to an open file description (OFD locks), and flock.
//!
//! A server holds locks for many clients in one process. POSIX locks would all be the server's own
//! and never conflict with each other; OFD locks belong to the description, of which each client
//! owner has its own. They conflict with POSIX locks of other programs on the same file.
//!
//! # Safety
//! `fcntl` is given a pointer to one `struct flock` on the stack.

#![allow(unsafe_code)]

use crate::raw::check_int;
use rustix::fs::FlockOperation;
use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The last byte, as FUSE and the kernel write it (`OFFSET_MAX`): a lock that ends here covers the file to
/// its end, however it grows.
pub const END_OF_FILE: u64 = i64::MAX.cast_unsigned();

// The same on all supported architectures (`asm-generic/fcntl.h`).
const F_OFD_GETLK: libc::c_int = 36;
const F_OFD_SETLK: libc::c_int = 37;
const F_OFD_SETLKW: libc::c_int = 38;

/// The kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Shared: other readers may hold it too.
    Read,
    /// Exclusive.
    Write,
    /// Releases the range.
    Unlock,
}

/// A lock on a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RangeLock {
    /// Its kind.
    pub kind: LockKind,
    /// The first byte.
    pub start: u64,
    /// The last byte, itself included. [`END_OF_FILE`] and above mean "to the end".
    pub end: u64,
    /// The holder, in results: a process id, or −1 for an OFD lock (and on other machines of a network file
    /// system). Ignored in requests.
    pub pid: i32,
}

impl RangeLock {
    /// As `struct flock`; EINVAL for a range that ends before it starts or starts past [`END_OF_FILE`].
    fn to_flock(self) -> Result<libc::flock> {
        let start = i64::try_from(self.start).map_err(|_| Errno::INVAL)?;
        if self.end < self.start {
            return Err(Errno::INVAL);
        }
        let length = match i64::try_from(self.end) {
            Ok(end) if end < i64::MAX => end - start + 1,
            // Zero means "to the end".
            _ => 0,
        };
        let kind = match self.kind {
            LockKind::Read => libc::F_RDLCK,
            LockKind::Write => libc::F_WRLCK,
            LockKind::Unlock => libc::F_UNLCK,
        };
        Ok(libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: start,
            l_len: length,
            // Must be zero for OFD locks.
            l_pid: 0,
        })
    }

    /// From the kernel's result; nothing when no lock conflicts.
    fn from_flock(flock: &libc::flock) -> Option<Self> {
        let kind = match libc::c_int::from(flock.l_type) {
            libc::F_RDLCK => LockKind::Read,
            libc::F_WRLCK => LockKind::Write,
            _ => return None,
        };
        let start = flock.l_start.cast_unsigned();
        let end = match flock.l_len {
            0 => END_OF_FILE,
            length => start + length.cast_unsigned() - 1,
        };
        Some(Self {
            kind,
            start,
            end,
            pid: flock.l_pid,
        })
    }
}

fn fcntl(descriptor: BorrowedFd<'_>, command: libc::c_int, flock: &mut libc::flock) -> Result<()> {
    // SAFETY: all three commands read, and the first writes, one `struct flock`.
    let answer = unsafe { libc::fcntl(descriptor.as_raw_fd(), command, &raw mut *flock) };
    check_int(answer).map(drop)
}

/// Returns a lock that conflicts with `wanted` (one of them, with its range and holder), or nothing.
/// [`LockKind::Unlock`] queries the description's *own* lock in the range (recent kernels; EINVAL on older
/// ones).
///
/// # Errors
/// EINVAL for an invalid range, EBADF for an `O_PATH` descriptor.
pub fn ofd_get(descriptor: impl AsFd, wanted: &RangeLock) -> Result<Option<RangeLock>> {
    let mut flock = wanted.to_flock()?;
    fcntl(descriptor.as_fd(), F_OFD_GETLK, &mut flock)?;
    Ok(RangeLock::from_flock(&flock))
}

/// Takes or releases a lock, without waiting.
///
/// # Errors
/// EAGAIN when another lock conflicts; EBADF when the descriptor is not open for what the lock protects
/// (reading, writing); EINVAL, ENOLCK.
pub fn ofd_set(descriptor: impl AsFd, lock: &RangeLock) -> Result<()> {
    fcntl(descriptor.as_fd(), F_OFD_SETLK, &mut lock.to_flock()?)
}

/// Takes a lock, sleeping until none conflicts. The kernel detects no deadlocks of OFD locks.
///
/// # Errors
/// EINTR when a signal without `SA_RESTART` arrived ([`crate::signal::interrupt_thread`]), and those
/// of [`ofd_set`].
pub fn ofd_set_wait(descriptor: impl AsFd, lock: &RangeLock) -> Result<()> {
    fcntl(descriptor.as_fd(), F_OFD_SETLKW, &mut lock.to_flock()?)
}

/// Takes or releases the whole-file lock of `flock(2)`, without waiting. A conversion is not atomic.
///
/// # Errors
/// EWOULDBLOCK when another lock conflicts, EBADF for an `O_PATH` descriptor.
pub fn flock(descriptor: impl AsFd, kind: LockKind) -> Result<()> {
    let operation = match kind {
        LockKind::Read => FlockOperation::NonBlockingLockShared,
        LockKind::Write => FlockOperation::NonBlockingLockExclusive,
        LockKind::Unlock => FlockOperation::NonBlockingUnlock,
    };
    rustix::fs::flock(descriptor, operation)
}

/// As [`flock`], sleeping until no lock conflicts.
///
/// # Errors
/// EINTR when a signal without `SA_RESTART` arrived ([`crate::signal::interrupt_thread`]).
pub fn flock_wait(descriptor: impl AsFd, kind: LockKind) -> Result<()> {
    let operation = match kind {
        LockKind::Read => FlockOperation::LockShared,
        LockKind::Write => FlockOperation::LockExclusive,
        LockKind::Unlock => FlockOperation::Unlock,
    };
    rustix::fs::flock(descriptor, operation)
}

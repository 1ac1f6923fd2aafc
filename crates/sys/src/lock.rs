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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::{current_thread_id, install_interrupt_handler, interrupt_thread};
    use crate::test_ground::{directory, open};
    use rustix::fs::OFlags;
    use std::os::fd::OwnedFd;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    fn two() -> (tempfile::TempDir, OwnedFd, OwnedFd) {
        let place = directory();
        let path = place.path().join("file");
        let first = open(&path, OFlags::CREATE | OFlags::RDWR);
        let second = open(&path, OFlags::RDWR);
        (place, first, second)
    }

    fn lock(kind: LockKind, start: u64, end: u64) -> RangeLock {
        RangeLock {
            kind,
            start,
            end,
            pid: 77,
        }
    }

    #[test]
    fn numbers_are_libc_s() {
        #[cfg(target_env = "gnu")]
        {
            assert_eq!(F_OFD_GETLK, libc::F_OFD_GETLK);
            assert_eq!(F_OFD_SETLK, libc::F_OFD_SETLK);
            assert_eq!(F_OFD_SETLKW, libc::F_OFD_SETLKW);
        }
    }

    #[test]
    fn locks_round_trip_as_struct_flock() {
        for (kind, end, length) in [
            (LockKind::Read, 9, 10),
            (LockKind::Write, END_OF_FILE - 1, i64::MAX),
            (LockKind::Read, END_OF_FILE, 0),
        ] {
            let asked = lock(kind, 0, end);
            let mut flock = asked.to_flock().unwrap();
            assert_eq!(flock.l_len, length);
            flock.l_pid = asked.pid;
            assert_eq!(RangeLock::from_flock(&flock), Some(asked));
        }
    }

    #[test]
    fn ranges_to_the_end_and_invalid_ranges() {
        let (_place, first, second) = two();
        for end in [u64::MAX, END_OF_FILE, END_OF_FILE + 1] {
            ofd_set(&first, &lock(LockKind::Write, 5, end)).unwrap();
            let holder = ofd_get(&second, &lock(LockKind::Write, 1 << 40, u64::MAX)).unwrap();
            let range = holder.map(|lock| (lock.start, lock.end));
            assert_eq!(range, Some((5, END_OF_FILE)));
            ofd_set(&first, &lock(LockKind::Unlock, 0, u64::MAX)).unwrap();
        }
        ofd_set(&first, &lock(LockKind::Write, 5, END_OF_FILE - 1)).unwrap();
        let holder = ofd_get(&second, &lock(LockKind::Read, 6, 6)).unwrap();
        assert_eq!(holder.map(|lock| lock.end), Some(END_OF_FILE - 1));
        for (start, end) in [(5, 4), (END_OF_FILE + 1, u64::MAX), (u64::MAX, 0)] {
            let reversed = lock(LockKind::Read, start, end);
            assert_eq!(ofd_set(&first, &reversed), Err(Errno::INVAL));
        }
    }

    /// Interrupts a waiting thread until it reports; returns how its wait ended.
    fn interrupted(wait: impl FnOnce() -> Result<()> + Send) -> Result<()> {
        install_interrupt_handler().unwrap();
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                sender.send(current_thread_id()).unwrap();
                wait()
            });
            let thread = receiver.recv().unwrap();
            let start = Instant::now();
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waiter.is_finished(), "it did not wait");
            while !waiter.is_finished() && start.elapsed() < Duration::from_secs(60) {
                let _ = interrupt_thread(thread);
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(waiter.is_finished(), "the wait went on after a signal");
            waiter.join().unwrap()
        })
    }

    #[test]
    fn waiting_for_a_range_is_interrupted() {
        let (_place, first, second) = two();
        let wanted = lock(LockKind::Write, 0, 9);
        ofd_set(&first, &wanted).unwrap();
        let waited = interrupted(|| ofd_set_wait(&second, &wanted));
        assert_eq!(waited, Err(Errno::INTR));
        drop(first);
        let again = ofd_set_wait(&second, &wanted);
        assert_eq!(again, Ok(()), "nothing was left behind");
    }

    #[test]
    fn waiting_for_flock_is_interrupted() {
        let (_place, first, second) = two();
        flock(&first, LockKind::Read).unwrap();
        flock(&second, LockKind::Read).unwrap();
        assert_eq!(flock(&second, LockKind::Write), Err(Errno::WOULDBLOCK));
        let waited = interrupted(|| flock_wait(&second, LockKind::Write));
        assert_eq!(waited, Err(Errno::INTR));
        flock(&first, LockKind::Unlock).unwrap();
        flock_wait(&second, LockKind::Write).unwrap();
    }
}

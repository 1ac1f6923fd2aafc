//! The magic links of `/proc/self/fd`: what an `O_PATH` descriptor cannot do itself is done through
//! its link, which leads to the very inode and nowhere else, a symbolic link included.
//!
//! One descriptor of that directory is kept for the life of the process. It makes each of these
//! calls a quarter shorter than the absolute path does (there is nothing to walk but the number),
//! and it goes on working in a mount namespace where `/proc` is not to be seen: call [`prepare`]
//! before going there.
//!
//! The directory belongs to the process that opened it. A child after `fork` would act on its
//! parent's descriptors, so a fork handler makes the child forget it and open its own.
//!
//! # Safety
//!
//! The kept descriptor is never closed, so borrowing it for ever is sound. The fork handler only
//! stores to an atomic, which is allowed in a child of many threads.

#![allow(unsafe_code)]

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The kept descriptor, or −1.
static KEPT: AtomicI32 = AtomicI32::new(-1);
/// Whether the fork handler is there (more than once does no harm).
static HANDLES_FORK: AtomicBool = AtomicBool::new(false);
/// `PROC_SUPER_MAGIC` of `linux/magic.h`.
const PROC_SUPER_MAGIC: u64 = 0x9fa0;

extern "C" fn forget_in_child() {
    KEPT.store(-1, Ordering::Release);
}

/// Opens `/proc/self/fd` if that is not done yet. Later calls of this crate do it themselves;
/// calling it early turns a missing `/proc` into an error at start-up.
///
/// # Errors
/// Those of `open(2)`, and ENODEV when something else than procfs is mounted there.
pub fn prepare() -> Result<()> {
    directory().map(drop)
}

#[inline]
pub(crate) fn directory() -> Result<BorrowedFd<'static>> {
    match KEPT.load(Ordering::Acquire) {
        -1 => keep(),
        // SAFETY: what was stored there is never closed.
        kept => Ok(unsafe { BorrowedFd::borrow_raw(kept) }),
    }
}

#[cold]
fn keep() -> Result<BorrowedFd<'static>> {
    if !HANDLES_FORK.swap(true, Ordering::AcqRel) {
        // SAFETY: the handler lives as long as the program and only stores to an atomic.
        let code = unsafe { libc::pthread_atfork(None, None, Some(forget_in_child)) };
        if code != 0 {
            HANDLES_FORK.store(false, Ordering::Release);
            return Err(Errno::from_raw_os_error(code));
        }
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty())?;
    if rustix::fs::fstatfs(&opened)?.f_type.cast_unsigned() != PROC_SUPER_MAGIC {
        return Err(Errno::NODEV);
    }
    let number = opened.as_raw_fd();
    let kept = match KEPT.compare_exchange(-1, number, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => opened.into_raw_fd(),
        // Another thread was first; ours is closed.
        Err(kept) => kept,
    };
    // SAFETY: what is stored in KEPT is never closed.
    Ok(unsafe { BorrowedFd::borrow_raw(kept) })
}

/// Where the link of `descriptor` says that it leads: a path as this process sees it, where it can; with
/// ` (deleted)` behind it when the name is gone. A hint: it is out of date at once, and what was opened by
/// a file handle may have none.
///
/// # Errors
/// Those of `readlinkat(2)`.
pub fn path_hint(descriptor: BorrowedFd<'_>) -> Result<Vec<u8>> {
    let link = Link::of(descriptor);
    let path = rustix::fs::readlinkat(directory()?, link.in_directory(), Vec::new())?;
    Ok(path.into_bytes())
}

/// Opens the inode behind `descriptor` (which may be `O_PATH`) once more, with `flags` of its own;
/// close-on-exec is added. One system call. Permission is checked as if it were opened by name,
/// so write-only, truncating or appending opens of an `O_PATH` descriptor work.
///
/// # Errors
/// Those of `open(2)`: ELOOP for a symbolic link, ENXIO for a socket, ENOENT without `/proc`.
pub fn reopen(descriptor: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd> {
    let link = Link::of(descriptor);
    // The link itself must be followed, and creating makes no sense for what exists.
    let flags = flags.difference(OFlags::NOFOLLOW | OFlags::CREATE | OFlags::EXCL);
    rustix::fs::openat(
        directory()?,
        link.in_directory(),
        flags | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// `/proc/self/fd/N`, written on the stack.
pub(crate) struct Link {
    text: [u8; Self::ROOM],
}

impl Link {
    const STEM: &'static [u8] = b"/proc/self/fd/";
    /// Ten digits of a descriptor and the NUL.
    const ROOM: usize = Self::STEM.len() + 11;

    pub(crate) fn of(descriptor: BorrowedFd<'_>) -> Self {
        let mut text = [0; Self::ROOM];
        text[..Self::STEM.len()].copy_from_slice(Self::STEM);
        let mut rest = descriptor.as_raw_fd().unsigned_abs();
        let mut digits = [0_u8; 10];
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        let digits = &digits[first..];
        text[Self::STEM.len()..][..digits.len()].copy_from_slice(digits);
        Self { text }
    }

    /// The absolute path.
    pub(crate) fn absolute(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.text).expect("the last byte is never written")
    }

    /// The path relative to [`directory`].
    pub(crate) fn in_directory(&self) -> &CStr {
        let text = &self.text[Self::STEM.len()..];
        CStr::from_bytes_until_nul(text).expect("the last byte is never written")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ground::{directory as place, open};
    use std::os::fd::AsFd;

    #[test]
    fn links_are_written_right() {
        let text = |number| {
            let link = Link::of(borrowed(number));
            (link.absolute().to_owned(), link.in_directory().to_owned())
        };
        for number in [0, 9, 10, 1023, i32::MAX] {
            let (absolute, relative) = text(number);
            assert_eq!(
                absolute.to_str().unwrap(),
                format!("/proc/self/fd/{number}")
            );
            assert_eq!(relative.to_str().unwrap(), number.to_string());
        }
    }

    fn borrowed(number: i32) -> BorrowedFd<'static> {
        // SAFETY: the caller only has the number written.
        unsafe { BorrowedFd::borrow_raw(number) }
    }

    /// The child must not find its parent's descriptors: it opens a file on a number that is
    /// another file in the parent, and reopens that.
    #[test]
    fn a_child_after_fork_finds_its_own() {
        let _alone = crate::test_ground::FORKING.write().unwrap();
        let place = place();
        let (mine, childs) = (place.path().join("mine"), place.path().join("childs"));
        std::fs::write(&mine, b"parent").unwrap();
        std::fs::write(&childs, b"child").unwrap();
        let file = open(&mine, OFlags::PATH);
        let other = open(&childs, OFlags::PATH);
        let length = |file: &OwnedFd| {
            let again = reopen(file.as_fd(), OFlags::RDONLY)?;
            rustix::io::read(again, &mut [0_u8; 16])
        };
        assert_eq!(length(&file), Ok(6));
        // SAFETY: the child makes system calls only, and ends without unwinding or exit handlers.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: `file` stays an open descriptor, though of another file.
            let moved = unsafe { libc::dup2(other.as_raw_fd(), file.as_raw_fd()) } >= 0;
            let code = if moved && length(&file) == Ok(5) {
                0
            } else {
                1
            };
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(code) };
        }
        let mut status = -1;
        // SAFETY: waits for the child and writes one int.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(length(&file), Ok(6));
    }

    #[test]
    fn reopen_with_other_flags() {
        let place = place();
        let path = place.path().join("file");
        std::fs::write(&path, b"content").unwrap();
        let file = open(&path, OFlags::PATH);
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW;
        let again = reopen(file.as_fd(), flags).unwrap();
        assert_eq!(rustix::io::write(&again, b"!"), Ok(1));
        assert_eq!(std::fs::read(&path).unwrap(), b"content!");
        let flags = rustix::io::fcntl_getfd(&again).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        std::fs::remove_file(&path).unwrap();
        // An unlinked file is still the same one.
        let again = reopen(file.as_fd(), OFlags::RDONLY).unwrap();
        assert_eq!(rustix::io::read(again, &mut [0; 16]), Ok(8));

        let link = place.path().join("link");
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        let link = open(&link, OFlags::PATH);
        assert_eq!(
            reopen(link.as_fd(), OFlags::RDONLY).unwrap_err(),
            Errno::LOOP
        );
    }
}

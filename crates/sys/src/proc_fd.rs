//! The magic links of `/proc/self/fd`: operations that an `O_PATH` descriptor does not support go through
//! its link, which leads to the same inode, also for a symbolic link.
//!
//! One descriptor of that directory is kept for the life of the process. Calls relative to it take a quarter
//! less time than with the absolute path (there is only the number to look up), and they work in a mount
//! namespace without `/proc`: call [`prepare`] before entering it.
//!
//! `..` of that directory leads to the rest of `/proc`, and from there anywhere. A process that confines
//! itself takes the directory as a mount of its own, with nothing above its root ([`Detached`]).
//!
//! The directory belongs to the process that opened it. A child after `fork` would act on its parent's
//! descriptors, so a fork handler makes the child forget it and open its own.
//!
//! # Safety
//! The kept descriptor is never closed, so borrowing it for ever is sound. The fork handler only stores to
//! an atomic, which is allowed in a child of a multi-threaded process.

#![allow(unsafe_code)]

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::mount::OpenTreeFlags;
use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The kept descriptor, or −1.
static KEPT: AtomicI32 = AtomicI32::new(-1);
/// Whether the fork handler is installed (twice is harmless).
static HANDLES_FORK: AtomicBool = AtomicBool::new(false);
/// Whether every thread works in the directory: see [`Detached::work_in`].
static IS_WORKING_DIRECTORY: AtomicBool = AtomicBool::new(false);
/// `PROC_SUPER_MAGIC` of `linux/magic.h`.
const PROC_SUPER_MAGIC: u64 = 0x9fa0;

extern "C" fn forget_in_child() {
    KEPT.store(-1, Ordering::Release);
    IS_WORKING_DIRECTORY.store(false, Ordering::Release);
}

/// Opens `/proc/self/fd` unless it is open. Other calls do so themselves; an early call reports a missing
/// `/proc` at start-up.
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
        // SAFETY: the stored descriptor is never closed.
        kept => Ok(unsafe { BorrowedFd::borrow_raw(kept) }),
    }
}

fn forget_after_fork() -> Result<()> {
    if !HANDLES_FORK.swap(true, Ordering::AcqRel) {
        // SAFETY: the handler lives as long as the program and only stores to an atomic.
        let code = unsafe { libc::pthread_atfork(None, None, Some(forget_in_child)) };
        if code != 0 {
            HANDLES_FORK.store(false, Ordering::Release);
            return Err(Errno::from_raw_os_error(code));
        }
    }
    Ok(())
}

#[cold]
fn keep() -> Result<BorrowedFd<'static>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty())?;
    must_be_procfs(&opened)?;
    let number = opened.as_raw_fd();
    // If another thread was faster, ours is closed.
    let kept = directory_or(opened)?.map_or(number, |(_ours, kept)| kept);
    // SAFETY: the descriptor in KEPT is never closed.
    Ok(unsafe { BorrowedFd::borrow_raw(kept) })
}

/// `/proc/self/fd` as a detached mount: `..` stays in it, and it leads only to what this process has open.
#[derive(Debug)]
pub struct Detached(OwnedFd);

impl Detached {
    /// Clones the mount, while `/proc` is in the tree (`open_tree(2)`, Linux 5.2).
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN over the mount namespace, those of `open(2)`, and ENODEV when
    /// something else than procfs is mounted there.
    pub fn take() -> Result<Self> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = rustix::mount::open_tree(rustix::fs::CWD, c"/proc/self/fd", flags)?;
        must_be_procfs(&tree)?;
        Ok(Self(tree))
    }

    /// Replaces the kept directory by this one, and works in it: without `/proc`, calls that take a path
    /// find the links by their numbers. A path beginning with `/proc` would be looked up in the confined
    /// process's tree, where a client may have created one.
    ///
    /// Called by the only thread of the process, after which nothing may change the working directory.
    ///
    ///
    /// # Errors
    /// Those of `dup3(2)` and `fchdir(2)`.
    pub fn work_in(self) -> Result<()> {
        rustix::process::fchdir(&self.0)?;
        let before = directory_or(self.0)?;
        if let Some((tree, kept)) = before {
            // SAFETY: `kept` is open and stays so: dup3(2) replaces its file in one step. It is never closed,
            // so forgetting it is right.
            let mut kept = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(kept) });
            rustix::io::dup3(&tree, &mut kept, rustix::io::DupFlags::CLOEXEC)?;
        }
        IS_WORKING_DIRECTORY.store(true, Ordering::Release);
        Ok(())
    }
}

/// Keeps `directory` unless one is kept; returns it with the kept one otherwise.
fn directory_or(directory: OwnedFd) -> Result<Option<(OwnedFd, RawFd)>> {
    forget_after_fork()?;
    let number = directory.as_raw_fd();
    match KEPT.compare_exchange(-1, number, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            let _ = directory.into_raw_fd();
            Ok(None)
        }
        Err(kept) => Ok(Some((directory, kept))),
    }
}

fn must_be_procfs(directory: &OwnedFd) -> Result<()> {
    if rustix::fs::fstatfs(directory)?.f_type.cast_unsigned() == PROC_SUPER_MAGIC {
        Ok(())
    } else {
        Err(Errno::NODEV)
    }
}

/// The path that the link of `descriptor` shows to this process, with ` (deleted)` behind it when the name
/// is gone. A hint: it may be out of date at once, and is absent for some files opened by handle.
///
///
/// # Errors
/// Those of `readlinkat(2)`.
pub fn path_hint(descriptor: BorrowedFd<'_>) -> Result<Vec<u8>> {
    let link = Link::of(descriptor);
    let path = rustix::fs::readlinkat(directory()?, link.in_directory(), Vec::new())?;
    Ok(path.into_bytes())
}

/// Opens the inode behind `descriptor` (which may be `O_PATH`) once more, with `flags` of its own and
/// close-on-exec. One system call. Permission is checked as if it were opened by name, so write-only,
/// truncating or appending opens work.
///
/// # Errors
/// Those of `open(2)`: ELOOP for a symbolic link, ENXIO for a socket, ENOENT without `/proc`.
pub fn reopen(descriptor: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd> {
    let link = Link::of(descriptor);
    // The link must be followed, and an existing file is not created.
    let flags = flags.difference(OFlags::NOFOLLOW | OFlags::CREATE | OFlags::EXCL);
    rustix::fs::openat(
        directory()?,
        link.in_directory(),
        flags | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Gives the inode behind `descriptor` (which may be `O_PATH`) another name. `linkat` with `AT_EMPTY_PATH`
/// needs CAP_DAC_READ_SEARCH for that; this needs no capability.
///
/// # Errors
/// Those of `linkat(2)`.
pub fn link(descriptor: BorrowedFd<'_>, parent: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    let link = Link::of(descriptor);
    let flags = rustix::fs::AtFlags::SYMLINK_FOLLOW;
    rustix::fs::linkat(directory()?, link.in_directory(), parent, name, flags)
}

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

    /// A path for calls without a directory argument: absolute, unless the process works in [`directory`].
    pub(crate) fn path(&self) -> &CStr {
        if IS_WORKING_DIRECTORY.load(Ordering::Acquire) {
            return self.in_directory();
        }
        CStr::from_bytes_until_nul(&self.text).expect("the last byte is never written")
    }

    pub(crate) fn in_directory(&self) -> &CStr {
        let text = &self.text[Self::STEM.len()..];
        CStr::from_bytes_until_nul(text).expect("the last byte is never written")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ground::{directory as place, open, root};
    use std::os::fd::AsFd;

    #[test]
    fn links_are_formatted() {
        let text = |number| {
            let link = Link::of(borrowed(number));
            (link.path().to_owned(), link.in_directory().to_owned())
        };
        for number in [0, 9, 10, 1023, i32::MAX] {
            let (absolute, relative) = text(number);
            let absolute = absolute.to_str().unwrap();
            assert_eq!(absolute, format!("/proc/self/fd/{number}"));
            assert_eq!(relative.to_str().unwrap(), number.to_string());
        }
    }

    fn borrowed(number: i32) -> BorrowedFd<'static> {
        // SAFETY: the caller only formats the number.
        unsafe { BorrowedFd::borrow_raw(number) }
    }

    /// The child must not find its parent's descriptors: it opens a file on a number that is another file
    /// in the parent, and reopens it.
    #[test]
    fn a_child_after_fork_finds_its_own_descriptors() {
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

    /// No process of its own is possible here: the kept directory of all threads is left alone.
    #[test]
    fn a_detached_directory_has_nothing_above_it() {
        let Some(()) = root() else { return };
        let Detached(tree) = Detached::take().unwrap();
        let at = |path: &str, flags| rustix::fs::openat(&tree, path, flags, Mode::empty());
        let same = rustix::fs::fstat(&tree).unwrap();
        for path in ["..", "../..", "../../.."] {
            let above = rustix::fs::fstat(at(path, OFlags::PATH).unwrap()).unwrap();
            assert_eq!((above.st_dev, above.st_ino), (same.st_dev, same.st_ino));
        }
        for path in [
            "../../self/status",
            "../root/proc",
            "../cwd/.",
            "../../sys/kernel/core_pattern",
        ] {
            assert_eq!(at(path, OFlags::PATH).unwrap_err(), Errno::NOENT, "{path}");
        }
        let place = place();
        std::fs::write(place.path().join("file"), "content").unwrap();
        let file = open(place.path().join("file"), OFlags::PATH);
        let again = at(&file.as_raw_fd().to_string(), OFlags::RDONLY).unwrap();
        assert_eq!(rustix::io::read(again, &mut [0; 16]), Ok(7));
    }

    #[test]
    fn reopening_with_other_flags() {
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
        let refused = reopen(link.as_fd(), OFlags::RDONLY).unwrap_err();
        assert_eq!(refused, Errno::LOOP);
    }
}

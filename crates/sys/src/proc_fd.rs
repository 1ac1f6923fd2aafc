//! The magic links of `/proc/self/fd`: operations that an `O_PATH` descriptor does not support go through
//! its link, which leads to the same inode, also for a symbolic link.
//!
//! A server works in that directory ([`Links::work_in`]), so its calls name links by their numbers alone. That
//! takes a quarter less time than the absolute path, and works in a mount namespace without `/proc`. Any other
//! process uses the absolute path.
//!
//! `..` of that directory leads to the rest of `/proc`, and from there anywhere. A process that confines
//! itself takes the directory as a mount of its own, with nothing above its root ([`Links::detached`]).

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::mount::OpenTreeFlags;
use rustix::path::DecInt;
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether every thread works in the directory: see [`Links::work_in`].
static IS_WORKING_DIRECTORY: AtomicBool = AtomicBool::new(false);
/// `PROC_SUPER_MAGIC` of `linux/magic.h`.
const PROC_SUPER_MAGIC: u64 = 0x9fa0;

/// Reports a missing `/proc` at start-up, unless this process works in the directory already.
///
/// # Errors
/// As [`Links::visible`].
pub fn check() -> Result<()> {
    match IS_WORKING_DIRECTORY.load(Ordering::Acquire) {
        true => Ok(()),
        false => Links::visible().map(drop),
    }
}

/// Works in the directory as it is in the tree, unless this process works in it already.
///
/// # Errors
/// As [`Links::visible`] and [`Links::work_in`].
pub fn enter() -> Result<()> {
    match IS_WORKING_DIRECTORY.load(Ordering::Acquire) {
        true => Ok(()),
        false => Links::visible()?.work_in(),
    }
}

/// `/proc/self/fd`, which leads to what this process has open.
#[derive(Debug)]
pub struct Links(OwnedFd);

impl Links {
    /// As it is in the tree.
    ///
    /// # Errors
    /// Those of `open(2)`, and ENODEV when something else than procfs is mounted there.
    pub fn visible() -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self::of_procfs(rustix::fs::openat(
            CWD,
            c"/proc/self/fd",
            flags,
            Mode::empty(),
        )?)
    }

    /// As a mount that is in no tree: `..` stays in it. Taken while `/proc` is in the tree (`open_tree(2)`,
    /// Linux 5.2).
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN over the mount namespace, and as [`visible`](Self::visible).
    pub fn detached() -> Result<Self> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        Self::of_procfs(rustix::mount::open_tree(CWD, c"/proc/self/fd", flags)?)
    }

    fn of_procfs(directory: OwnedFd) -> Result<Self> {
        if rustix::fs::fstatfs(&directory)?.f_type.cast_unsigned() == PROC_SUPER_MAGIC {
            Ok(Self(directory))
        } else {
            Err(Errno::NODEV)
        }
    }

    /// Makes it the working directory, in which calls find the links by their numbers. A path beginning with
    /// `/proc` would be looked up in the confined process's tree, where a client may have created one.
    ///
    /// Called by the only thread of the process, after which nothing may change the working directory, and
    /// no child is forked that does not execute a program: it would find its parent's descriptors.
    ///
    /// # Errors
    /// Those of `fchdir(2)`.
    pub fn work_in(self) -> Result<()> {
        rustix::process::fchdir(&self.0)?;
        IS_WORKING_DIRECTORY.store(true, Ordering::Release);
        Ok(())
    }
}

/// The path that the link of `descriptor` shows to this process, with ` (deleted)` behind it when the name
/// is gone. A hint: it may be out of date at once, and is absent for some files opened by handle.
///
/// # Errors
/// Those of `readlinkat(2)`.
pub fn path_hint(descriptor: BorrowedFd<'_>) -> Result<Vec<u8>> {
    let path = rustix::fs::readlinkat(CWD, Link::of(descriptor).path(), Vec::new())?;
    Ok(path.into_bytes())
}

/// Opens the inode behind `descriptor` (which may be `O_PATH`) once more, with `flags` of its own and
/// close-on-exec. One system call. Permission is checked as if it were opened by name, so write-only,
/// truncating or appending opens work.
///
/// # Errors
/// Those of `open(2)`: ELOOP for a symbolic link, ENXIO for a socket, ENOENT without `/proc`.
pub fn reopen(descriptor: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd> {
    // The link must be followed, and an existing file is not created.
    let flags = flags.difference(OFlags::NOFOLLOW | OFlags::CREATE | OFlags::EXCL);
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, Link::of(descriptor).path(), flags, Mode::empty())
}

/// Gives the inode behind `descriptor` (which may be `O_PATH`) another name. `linkat` with `AT_EMPTY_PATH`
/// needs CAP_DAC_READ_SEARCH for that; this needs no capability.
///
/// # Errors
/// Those of `linkat(2)`.
pub fn link(descriptor: BorrowedFd<'_>, parent: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    let flags = rustix::fs::AtFlags::SYMLINK_FOLLOW;
    rustix::fs::linkat(CWD, Link::of(descriptor).path(), parent, name, flags)
}

/// The path of a descriptor's link.
pub(crate) struct Link {
    text: [u8; Self::ROOM],
}

impl Link {
    const STEM: &'static [u8] = b"/proc/self/fd/";
    /// Ten digits of a descriptor and the NUL.
    const ROOM: usize = Self::STEM.len() + 11;

    pub(crate) fn of(descriptor: BorrowedFd<'_>) -> Self {
        let number = DecInt::from_fd(descriptor);
        let number = number.as_bytes_with_nul();
        let mut text = [0; Self::ROOM];
        text[..Self::STEM.len()].copy_from_slice(Self::STEM);
        text[Self::STEM.len()..][..number.len()].copy_from_slice(number);
        Self { text }
    }

    /// Absolute, unless the process works in the directory.
    pub(crate) fn path(&self) -> &CStr {
        let is_relative = IS_WORKING_DIRECTORY.load(Ordering::Acquire);
        let start = if is_relative { Self::STEM.len() } else { 0 };
        CStr::from_bytes_until_nul(&self.text[start..]).expect("it ends with the number's NUL")
    }
}

#[cfg(test)]
mod tests {
    #![allow(unsafe_code)]

    use super::*;
    use crate::test_ground::{directory as place, open, root};
    use std::os::fd::{AsFd, AsRawFd};

    #[test]
    fn links_are_formatted() {
        for number in [0, 9, 10, 1023, i32::MAX] {
            // SAFETY: the number is only formatted.
            let link = Link::of(unsafe { BorrowedFd::borrow_raw(number) });
            let expected = format!("/proc/self/fd/{number}");
            assert_eq!(link.path().to_str().unwrap(), expected);
        }
    }

    /// `..` of the detached directory leads nowhere.
    #[test]
    fn a_detached_directory_has_nothing_above_it() {
        let Some(()) = root() else { return };
        let Links(tree) = Links::detached().unwrap();
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

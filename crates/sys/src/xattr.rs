//! Extended attributes by descriptor, `O_PATH` and symbolic links included.
//!
//! `fgetxattr` and its kin refuse `O_PATH` descriptors, and so does `getxattrat` with `AT_EMPTY_PATH`
//! (observed on Linux 6.18: EBADF). The descriptor's link in `/proc/self/fd` works for every kind of inode:
//! with `getxattrat` (Linux 6.13) relative to the kept descriptor of [`proc_fd`](crate::proc_fd), which works
//! without `/proc` in the tree; on older kernels by the absolute path. One system call either way. On a
//! descriptor that is not `O_PATH`, `rustix::fs::fgetxattr` takes a third of the time.
//!
//! Sizes are bytes. An empty buffer asks for the size, as in `getxattr(2)`.
//!
//! # Safety
//! Values and lists are given with pointer and length of one slice; the kernel writes no more than that
//! length.

#![allow(unsafe_code)]

use crate::proc_fd::{Link, directory};
use crate::raw::{check, check_int};
use rustix::io::{Errno, Result};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// `setxattr`: fail with EEXIST when the attribute exists.
pub const CREATE: u32 = 1;
/// `setxattr`: fail with ENODATA when it does not.
pub const REPLACE: u32 = 2;

// The same number on all supported architectures (asm-generic and x86_64).
const SYS_SETXATTRAT: libc::c_long = 463;
const SYS_GETXATTRAT: libc::c_long = 464;
const SYS_LISTXATTRAT: libc::c_long = 465;
const SYS_REMOVEXATTRAT: libc::c_long = 466;

/// Set once `*xattrat` failed with ENOSYS (before Linux 6.13, or under a filter older than it).
static WITHOUT_AT: AtomicBool = AtomicBool::new(false);

/// `struct xattr_args` of `linux/xattr.h`.
#[repr(C, align(8))]
struct XattrArgs {
    value: u64,
    size: u32,
    flags: u32,
}

impl XattrArgs {
    const SIZE: usize = size_of::<Self>();

    fn new(value: *const u8, length: usize, flags: u32) -> Result<Self> {
        let size = u32::try_from(length).map_err(|_| Errno::TOOBIG)?;
        Ok(Self {
            value: value.expose_provenance() as u64,
            size,
            flags,
        })
    }
}

/// Calls `modern`; `old` when the kernel lacks it, now and, by `without`, from then on.
fn either<T>(
    without: &AtomicBool,
    modern: impl FnOnce() -> Result<T>,
    old: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if !without.load(Ordering::Relaxed) {
        match modern() {
            Err(Errno::NOSYS) => without.store(true, Ordering::Relaxed),
            answer => return answer,
        }
    }
    old()
}

/// Calls one of `*xattrat(2)` on the inode of `link`, without flags.
///
/// # Safety
/// `first` and, where it is an address, `second` are valid arguments of the call.
unsafe fn call_at<T>(
    call: libc::c_long,
    link: &Link,
    first: *const T,
    second: usize,
    third: usize,
) -> Result<usize> {
    let (directory, path) = (directory()?.as_raw_fd(), link.in_directory().as_ptr());
    // SAFETY: the path ends in NUL; the caller answers for the rest.
    check(unsafe { libc::syscall(call, directory, path, 0_u32, first, second, third) })
}

/// Reads attribute `name` into `value` and returns its size; with an empty `value` only the size.
///
/// # Errors
/// ENODATA when it is not there, ERANGE when `value` is too small, EOPNOTSUPP, EPERM, EACCES.
pub fn get(descriptor: impl AsFd, name: &CStr, value: &mut [u8]) -> Result<usize> {
    let link = Link::of(descriptor.as_fd());
    // The kernel never gives more than XATTR_SIZE_MAX (64 KiB).
    let room = value.len().min(u32::MAX as usize);
    let value = value.as_mut_ptr();
    let modern = || {
        let args = XattrArgs::new(value, room, 0)?;
        let at = (&raw const args).expose_provenance();
        // SAFETY: the name ends in NUL; `args` names the `room` bytes of the caller's slice.
        unsafe { call_at(SYS_GETXATTRAT, &link, name.as_ptr(), at, XattrArgs::SIZE) }
    };
    let old = || {
        let path = link.path().as_ptr();
        // SAFETY: as above; the length is that of the slice.
        let answer = unsafe { libc::getxattr(path, name.as_ptr(), value.cast(), room) };
        check(answer as libc::c_long)
    };
    either(&WITHOUT_AT, modern, old)
}

/// Sets attribute `name` to `value`; `flags` are zero, [`CREATE`] or [`REPLACE`].
///
/// # Errors
/// EEXIST and ENODATA by `flags`, ENOSPC, EDQUOT, EOPNOTSUPP, EPERM, EACCES, E2BIG.
pub fn set(descriptor: impl AsFd, name: &CStr, value: &[u8], flags: u32) -> Result<()> {
    let link = Link::of(descriptor.as_fd());
    let modern = || {
        let args = XattrArgs::new(value.as_ptr(), value.len(), flags)?;
        let at = (&raw const args).expose_provenance();
        // SAFETY: the name ends in NUL; `args` names the bytes of `value`, which are only read.
        unsafe { call_at(SYS_SETXATTRAT, &link, name.as_ptr(), at, XattrArgs::SIZE) }.map(drop)
    };
    let old = || {
        let path = link.path().as_ptr();
        let flags = flags.cast_signed();
        // SAFETY: as above; pointer and length are those of `value`.
        let answer = unsafe {
            libc::setxattr(
                path,
                name.as_ptr(),
                value.as_ptr().cast(),
                value.len(),
                flags,
            )
        };
        check_int(answer).map(drop)
    };
    either(&WITHOUT_AT, modern, old)
}

/// Writes the names, each ending in NUL, into `names` and returns their size; with an empty `names` only
/// the size. `trusted.*` is listed only with CAP_SYS_ADMIN.
///
/// # Errors
/// ERANGE when `names` is too small, EOPNOTSUPP, EACCES.
pub fn list(descriptor: impl AsFd, names: &mut [u8]) -> Result<usize> {
    let link = Link::of(descriptor.as_fd());
    let room = names.len();
    let names = names.as_mut_ptr();
    // SAFETY: pointer and length are those of the caller's slice.
    let modern = || unsafe { call_at(SYS_LISTXATTRAT, &link, names, room, 0) };
    let old = || {
        // SAFETY: as above.
        let answer = unsafe { libc::listxattr(link.path().as_ptr(), names.cast(), room) };
        check(answer as libc::c_long)
    };
    either(&WITHOUT_AT, modern, old)
}

/// Removes attribute `name`.
///
/// # Errors
/// ENODATA when it is not there, EOPNOTSUPP, EPERM, EACCES.
pub fn remove(descriptor: impl AsFd, name: &CStr) -> Result<()> {
    let link = Link::of(descriptor.as_fd());
    // SAFETY: the name ends in NUL.
    let modern = || unsafe { call_at(SYS_REMOVEXATTRAT, &link, name.as_ptr(), 0, 0) }.map(drop);
    let old = || {
        // SAFETY: as above.
        let answer = unsafe { libc::removexattr(link.path().as_ptr(), name.as_ptr()) };
        check_int(answer).map(drop)
    };
    either(&WITHOUT_AT, modern, old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ground::{directories, in_a_thread, open, root, skipped};
    use rustix::fs::OFlags;
    use std::os::fd::BorrowedFd;

    /// Held by the test that forces the old calls, and by those that need the new ones.
    static FORCING: std::sync::Mutex<()> = std::sync::Mutex::new(());

    fn names(descriptor: BorrowedFd<'_>) -> Vec<Vec<u8>> {
        let mut buffer = [0; 4096];
        let length = list(descriptor, &mut buffer).unwrap();
        assert_eq!(list(descriptor, &mut []), Ok(length));
        let names = buffer[..length]
            .split_inclusive(|&byte| byte == 0)
            .map(<[u8]>::to_vec);
        // A security module may add its own.
        names
            .filter(|name| !name.starts_with(b"security."))
            .collect()
    }

    fn all_four(descriptor: BorrowedFd<'_>, name: &CStr) {
        assert_eq!(get(descriptor, name, &mut []), Err(Errno::NODATA));
        assert_eq!(set(descriptor, name, b"none", REPLACE), Err(Errno::NODATA));
        set(descriptor, name, b"first", CREATE).unwrap();
        assert_eq!(set(descriptor, name, b"second", CREATE), Err(Errno::EXIST));
        set(descriptor, name, b"second", 0).unwrap();
        let mut value = [0xaa; 16];
        assert_eq!(get(descriptor, name, &mut []), Ok(6));
        assert_eq!(get(descriptor, name, &mut value[..5]), Err(Errno::RANGE));
        assert_eq!(get(descriptor, name, &mut value), Ok(6));
        assert_eq!(&value[..7], b"second\xaa");
        assert_eq!(names(descriptor), [name.to_bytes_with_nul()]);
        assert_eq!(list(descriptor, &mut [0; 3]), Err(Errno::RANGE));
        set(descriptor, name, b"", REPLACE).unwrap();
        assert_eq!(get(descriptor, name, &mut value), Ok(0));
        remove(descriptor, name).unwrap();
        assert_eq!(remove(descriptor, name), Err(Errno::NODATA));
        assert!(names(descriptor).is_empty());
    }

    fn every_kind_of_descriptor() {
        let is_root = root().is_some();
        for place in directories() {
            let file = place.path().join("file");
            all_four(
                open(&file, OFlags::CREATE | OFlags::RDWR).as_fd(),
                c"user.test",
            );
            all_four(open(&file, OFlags::PATH).as_fd(), c"user.test");
            all_four(open(place.path(), OFlags::PATH).as_fd(), c"user.test");
            let link = place.path().join("link");
            std::os::unix::fs::symlink("file", &link).unwrap();
            let link = open(&link, OFlags::PATH);
            let refused = set(&link, c"user.test", b"", 0);
            assert_eq!(refused, Err(Errno::PERM), "a link has no user.*");
            if is_root {
                all_four(link.as_fd(), c"trusted.test");
                all_four(open(&file, OFlags::PATH).as_fd(), c"trusted.test");
            }
        }
    }

    #[test]
    fn new_and_old_calls_give_the_same() {
        let _alone = FORCING.lock().unwrap();
        let mut buffer = [0; 64];
        let known = get(open("/", OFlags::PATH), c"user.none", &mut buffer);
        assert!(known.is_err());
        if WITHOUT_AT.load(Ordering::Relaxed) {
            skipped("the part on getxattrat: this kernel has none");
        }
        every_kind_of_descriptor();
        let before = WITHOUT_AT.swap(true, Ordering::Relaxed);
        every_kind_of_descriptor();
        WITHOUT_AT.store(before, Ordering::Relaxed);
    }

    #[test]
    fn only_enosys_selects_the_old_calls() {
        let without = AtomicBool::new(false);
        let answer = either::<()>(&without, || Err(Errno::PERM), || Ok(()));
        assert_eq!(answer, Err(Errno::PERM));
        assert!(!without.load(Ordering::Relaxed));
        assert_eq!(either(&without, || Err(Errno::NOSYS), || Ok(5)), Ok(5));
        assert!(without.load(Ordering::Relaxed));
        assert_eq!(either(&without, || panic!("asked again"), || Ok(6)), Ok(6));
    }

    /// A thread that acts as another user still finds its own descriptors below `/proc`, although the change
    /// of user made the process undumpable and those files root's.
    #[test]
    fn works_as_another_user() {
        const CALLER: u32 = 54321;
        let Some(()) = root() else { return };
        let place = crate::test_ground::directory();
        let path = place.path().join("file");
        std::fs::write(&path, b"content").unwrap();
        std::os::unix::fs::chown(&path, Some(CALLER), None).unwrap();
        let file = open(&path, OFlags::PATH);
        in_a_thread(|| {
            crate::cred::set_fsuid(CALLER).unwrap();
            set(&file, c"user.test", b"mine", 0).unwrap();
            assert_eq!(get(&file, c"user.test", &mut [0; 8]), Ok(4));
            crate::attr::chmod(&file, 0o600).unwrap();
            crate::attr::truncate(&file, 2).unwrap();
            crate::proc_fd::reopen(file.as_fd(), OFlags::RDWR).unwrap();
        });
        in_a_thread(|| {
            crate::cred::set_fsuid(CALLER + 1).unwrap();
            assert_eq!(get(&file, c"user.test", &mut [0; 8]), Err(Errno::ACCESS));
            assert_eq!(crate::attr::truncate(&file, 0), Err(Errno::ACCESS));
        });
    }

    #[test]
    fn works_where_proc_is_hidden() {
        use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
        let Some(()) = root() else { return };
        let _alone = FORCING.lock().unwrap();
        crate::proc_fd::prepare().unwrap();
        let place = crate::test_ground::directory();
        let path = place.path().join("file");
        std::fs::write(&path, b"content").unwrap();
        let file = open(&path, OFlags::PATH);
        in_a_thread(|| {
            crate::cred::unshare_mount_namespace().unwrap();
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            mount_change("/", private).unwrap();
            mount("none", "/proc", "tmpfs", MountFlags::empty(), c"").unwrap();
            assert!(!std::path::Path::new("/proc/self").exists());
            crate::attr::truncate(&file, 3).unwrap();
            let again = crate::proc_fd::reopen(file.as_fd(), OFlags::RDONLY).unwrap();
            let mut content = [0; 16];
            assert_eq!(rustix::io::read(again, &mut content), Ok(3));
            if !WITHOUT_AT.load(Ordering::Relaxed) {
                set(&file, c"user.hidden", b"yes", 0).unwrap();
                assert_eq!(get(&file, c"user.hidden", &mut content), Ok(3));
            }
        });
    }
}

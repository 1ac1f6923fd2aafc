//! Extended attributes by descriptor, `O_PATH` and symbolic links included.
//!
//! `fgetxattr` and its kin refuse `O_PATH` descriptors, and so does `getxattrat` with `AT_EMPTY_PATH`
//! (observed on Linux 6.18: EBADF). The descriptor's link in `/proc/self/fd` works for every kind of inode
//! (see [`proc_fd`](crate::proc_fd)). On a descriptor that is not `O_PATH`, `rustix::fs::fgetxattr` takes a
//! third of the time.
//!
//! Sizes are bytes. An empty buffer asks for the size, as in `getxattr(2)`.

use crate::proc_fd::Link;
use rustix::fs::XattrFlags;
use rustix::io::Result;
use std::ffi::CStr;
use std::os::fd::AsFd;

/// `setxattr`: fail with EEXIST when the attribute exists.
pub const CREATE: u32 = XattrFlags::CREATE.bits();
/// `setxattr`: fail with ENODATA when it does not.
pub const REPLACE: u32 = XattrFlags::REPLACE.bits();

/// Reads attribute `name` into `value` and returns its size; with an empty `value` only the size.
///
/// # Errors
/// ENODATA when it is not there, ERANGE when `value` is too small, EOPNOTSUPP, EPERM, EACCES.
pub fn get(descriptor: impl AsFd, name: &CStr, value: &mut [u8]) -> Result<usize> {
    let link = Link::of(descriptor.as_fd());
    if value.is_empty() {
        return rustix::fs::getxattr_query(link.path(), name);
    }
    rustix::fs::getxattr(link.path(), name, value)
}

/// Sets attribute `name` to `value`; `flags` are zero, [`CREATE`] or [`REPLACE`].
///
/// # Errors
/// EEXIST and ENODATA by `flags`, ENOSPC, EDQUOT, EOPNOTSUPP, EPERM, EACCES, E2BIG.
pub fn set(descriptor: impl AsFd, name: &CStr, value: &[u8], flags: u32) -> Result<()> {
    let link = Link::of(descriptor.as_fd());
    let flags = XattrFlags::from_bits_retain(flags);
    rustix::fs::setxattr(link.path(), name, value, flags)
}

/// Writes the names, each ending in NUL, into `names` and returns their size; with an empty `names` only
/// the size. `trusted.*` is listed only with CAP_SYS_ADMIN.
///
/// # Errors
/// ERANGE when `names` is too small, EOPNOTSUPP, EACCES.
pub fn list(descriptor: impl AsFd, names: &mut [u8]) -> Result<usize> {
    let link = Link::of(descriptor.as_fd());
    if names.is_empty() {
        return rustix::fs::listxattr_query(link.path());
    }
    rustix::fs::listxattr(link.path(), names)
}

/// Removes attribute `name`.
///
/// # Errors
/// ENODATA when it is not there, EOPNOTSUPP, EPERM, EACCES.
pub fn remove(descriptor: impl AsFd, name: &CStr) -> Result<()> {
    rustix::fs::removexattr(Link::of(descriptor.as_fd()).path(), name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ground::{open, root};
    use rustix::fs::OFlags;
    use rustix::io::Errno;
    use std::os::fd::BorrowedFd;

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

    /// Needs a process of its own, which works in the directory of links.
    #[test]
    fn works_where_proc_is_hidden() {
        use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
        const INSIDE: &str = "THRUFS_SYS_TEST_HIDDEN_PROC";
        let Some(()) = root() else { return };
        if std::env::var_os(INSIDE).is_none() {
            return crate::test_ground::run_alone(
                "xattr::tests::works_where_proc_is_hidden",
                INSIDE,
            );
        }
        let place = crate::test_ground::directory();
        let path = place.path().join("file");
        std::fs::write(&path, b"content").unwrap();
        crate::cred::unshare_mount_namespace().unwrap();
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).unwrap();
        crate::proc_fd::Links::detached()
            .unwrap()
            .work_in()
            .unwrap();
        // On a mount of this namespace.
        let file = open(&path, OFlags::PATH);
        mount("none", "/proc", "tmpfs", MountFlags::empty(), c"").unwrap();
        assert!(!std::path::Path::new("/proc/self").exists());
        crate::proc_fd::check().unwrap();
        crate::attr::chmod(&file, 0o600).unwrap();
        crate::attr::truncate(&file, 3).unwrap();
        let again = crate::proc_fd::reopen(file.as_fd(), OFlags::RDONLY).unwrap();
        let mut content = [0; 16];
        assert_eq!(rustix::io::read(again, &mut content), Ok(3));
        all_four(file.as_fd(), c"user.hidden");
        let parent = open(place.path(), OFlags::PATH);
        crate::proc_fd::link(file.as_fd(), parent.as_fd(), c"another").unwrap();
        let hint = crate::proc_fd::path_hint(file.as_fd()).unwrap();
        assert_eq!(hint, path.into_os_string().into_encoded_bytes());
    }
}

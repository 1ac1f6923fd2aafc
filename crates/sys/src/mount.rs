//! The one call of the mount API that `rustix::mount` lacks.
//!
//! # Safety
//! `mount_setattr` is given a NUL-terminated path and one structure on the stack, with its size.

#![allow(unsafe_code)]

use crate::raw::check;
use rustix::io::Result;
use rustix::mount::{MountAttrFlags, MountPropagationFlags};
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd};

/// The name is empty and the descriptor is the mount.
pub const AT_EMPTY_PATH: u32 = 0x1000;
/// Every mount below it too.
pub const AT_RECURSIVE: u32 = 0x8000;

/// `struct mount_attr` of `linux/mount.h`, its first version.
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Sets and clears attributes of the mount at `name` in `directory`, and its propagation unless that is
/// empty (`mount_setattr(2)`, Linux 5.12), atomically. `flags` are zero, [`AT_EMPTY_PATH`] and
/// [`AT_RECURSIVE`].
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, EINVAL for what is no mount point, EBUSY for turning read-only while
/// files are open for writing.
pub fn mount_setattr(
    directory: impl AsFd,
    name: &CStr,
    flags: u32,
    set: MountAttrFlags,
    clear: MountAttrFlags,
    propagation: MountPropagationFlags,
) -> Result<()> {
    let attributes = MountAttr {
        set: u64::from(set.bits()),
        clear: u64::from(clear.bits()),
        propagation: u64::from(propagation.bits()),
        user_namespace: 0,
    };
    // SAFETY: `name` ends in NUL; the size is that of `attributes`, which is only read.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            directory.as_fd().as_raw_fd(),
            name.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttr>(),
        )
    };
    check(answer).map(drop)
}

/// A field of proc_pid_mountinfo(5), where spaces, tabs, line feeds and backslashes are three octal digits.
#[must_use]
pub fn unescape_field(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match rest {
            [
                b'\\',
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                tail @ ..,
            ] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ground::{directory, in_a_thread, open, root};
    use rustix::fs::OFlags;
    use rustix::io::Errno;
    use rustix::mount::{MountFlags, mount, mount_change};

    #[test]
    fn read_only_is_set_and_cleared() {
        let Some(()) = root() else { return };
        let place = directory();
        in_a_thread(|| {
            // The mount ends with the namespace, and that with the thread.
            crate::cred::unshare_mount_namespace().unwrap();
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            mount_change("/", private).unwrap();
            mount("none", place.path(), "tmpfs", MountFlags::empty(), c"").unwrap();
            let root = open(place.path(), OFlags::DIRECTORY);
            let read_only = MountAttrFlags::MOUNT_ATTR_RDONLY;
            let (none, same) = (MountAttrFlags::empty(), MountPropagationFlags::empty());
            let change = |set, clear| {
                mount_setattr(&root, c"", AT_EMPTY_PATH | AT_RECURSIVE, set, clear, same)
            };
            let file = place.path().join("file");
            change(read_only, none).unwrap();
            let error = std::fs::write(&file, "").unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
            change(none, read_only).unwrap();
            std::fs::write(&file, "").unwrap();
            let other = mount_setattr(&root, c"file", 0, read_only, none, same);
            assert_eq!(other, Err(Errno::INVAL));
        });
    }
}

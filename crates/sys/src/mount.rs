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

//! The inode-flag ioctls that a client may send, and no others.
//!
//! # Safety
//! The kernel trusts the command for the size of its argument, so only the commands below are sent, each
//! with a buffer of at least the size it can touch, aligned for the widest field.

#![allow(unsafe_code)]

use crate::raw::check_int;
use rustix::io::{Errno, Result};
use rustix::ioctl::opcode;
use std::os::fd::{AsFd, AsRawFd};

/// Reads the inode flags, `FS_*_FL`.
pub const FS_IOC_GETFLAGS: u32 = opcode::read::<libc::c_long>(b'f', 1) as u32;
/// Sets the inode flags.
pub const FS_IOC_SETFLAGS: u32 = opcode::write::<libc::c_long>(b'f', 2) as u32;
/// Reads the inode's generation.
pub const FS_IOC_GETVERSION: u32 = opcode::read::<libc::c_long>(b'v', 1) as u32;
/// Reads flags, extent size hint and project id: `struct fsxattr`.
pub const FS_IOC_FSGETXATTR: u32 = opcode::read::<[u32; 7]>(b'X', 31) as u32;
/// Sets what [`FS_IOC_FSGETXATTR`] reads.
pub const FS_IOC_FSSETXATTR: u32 = opcode::write::<[u32; 7]>(b'X', 32) as u32;

/// Room for the largest argument, `struct fsxattr` (28 bytes), aligned for a `long`.
#[repr(C, align(8))]
struct Argument([u8; 32]);

/// The commands that are sent, with their names.
///
/// Not `FS_IOC32_*`: since Linux 5.13 the kernel translates them for 32-bit programs
/// (`compat_sys_ioctl`), and a 64-bit program that sends them reaches file systems that do not know them.
pub const COMMANDS: [(u32, &str); 5] = [
    (FS_IOC_GETFLAGS, "FS_IOC_GETFLAGS"),
    (FS_IOC_SETFLAGS, "FS_IOC_SETFLAGS"),
    (FS_IOC_GETVERSION, "FS_IOC_GETVERSION"),
    (FS_IOC_FSGETXATTR, "FS_IOC_FSGETXATTR"),
    (FS_IOC_FSSETXATTR, "FS_IOC_FSSETXATTR"),
];

/// Whether a command is sent, and if so, whether its argument is `struct fsxattr` (28 bytes) and not a
/// number.
fn allowed(command: u32) -> Option<bool> {
    let is_sent = COMMANDS.iter().any(|(sent, _)| *sent == command);
    is_sent.then_some(matches!(command, FS_IOC_FSGETXATTR | FS_IOC_FSSETXATTR))
}

/// Whether the command changes the file.
pub fn changes(command: u32) -> bool {
    matches!(command, FS_IOC_SETFLAGS | FS_IOC_FSSETXATTR)
}

/// Sends `command` with `argument`, which is read and written in place, to the file behind `descriptor`
/// (not `O_PATH`), and returns the call's result, which is zero for all of these.
///
/// The three commands on numbers are declared with a `long` and copied as an `int` (`fs/ioctl.c`); callers
/// and FUSE use either, so they may have 4 or 8 bytes. The upper half of 8 bytes is unchanged.
///
/// # Errors
/// ENOTTY for any other command and where the file system has none, EINVAL for an argument of another
/// size, EPERM.
pub fn file_ioctl(descriptor: impl AsFd, command: u32, argument: &mut [u8]) -> Result<i32> {
    let is_fsxattr = allowed(command).ok_or(Errno::NOTTY)?;
    let fits = if is_fsxattr {
        argument.len() == 28
    } else {
        matches!(argument.len(), 4 | 8)
    };
    if !fits {
        return Err(Errno::INVAL);
    }
    let mut aligned = Argument([0; 32]);
    aligned.0[..argument.len()].copy_from_slice(argument);
    let descriptor = descriptor.as_fd().as_raw_fd();
    // SAFETY: the listed commands read and write at most 28 bytes at the pointer; there are 32.
    let answer = unsafe { libc::ioctl(descriptor, command as libc::Ioctl, &raw mut aligned) };
    let answer = check_int(answer)?;
    let length = argument.len();
    argument.copy_from_slice(&aligned.0[..length]);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ground::{directory, open};
    use rustix::fs::OFlags;

    #[test]
    fn other_commands_are_refused() {
        let place = directory();
        let file = open(place.path().join("file"), OFlags::CREATE | OFlags::RDWR);
        // The last three are FS_IOC32_GETFLAGS, FS_IOC32_SETFLAGS and FS_IOC32_GETVERSION.
        for other in [libc::FIONREAD as u32, 0x8004_6601, 0x4004_6602, 0x8004_7601] {
            assert_eq!(file_ioctl(&file, other, &mut [0; 4]), Err(Errno::NOTTY));
        }
        for length in [0, 3, 5, 28] {
            let mut argument = vec![0; length];
            let refused = file_ioctl(&file, FS_IOC_GETFLAGS, &mut argument);
            assert_eq!(refused, Err(Errno::INVAL));
        }
        for length in [0, 8, 27, 29] {
            let mut argument = vec![0; length];
            let refused = file_ioctl(&file, FS_IOC_FSGETXATTR, &mut argument);
            assert_eq!(refused, Err(Errno::INVAL));
        }
    }
}

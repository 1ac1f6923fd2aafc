//! `/dev/fuse`: opening it, cloning a channel of a session, registering backing files.
//!
//! The commands follow `linux/fuse.h`, section "Device ioctls".
//!
//! # Safety
//! Each ioctl here reads at most one small structure that lives on the caller's stack for the
//! length of the call, and writes no memory.

#![allow(unsafe_code)]

use crate::raw::check_int;
use rustix::fs::{Mode, OFlags};
use rustix::io::Result;
use rustix::ioctl::{Opcode, opcode};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The ioctl type of FUSE devices, `FUSE_DEV_IOC_MAGIC`.
const MAGIC: u8 = 229;

/// `struct fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

/// The command of [`clone_channel`], for seccomp filters.
pub const CLONE: Opcode = opcode::read::<u32>(MAGIC, 0);
/// The command of [`backing_open`].
pub const BACKING_OPEN: Opcode = opcode::write::<BackingMap>(MAGIC, 1);
/// The command of [`backing_close`].
pub const BACKING_CLOSE: Opcode = opcode::write::<u32>(MAGIC, 2);
const SYNC_INIT: Opcode = opcode::none(MAGIC, 3);

/// Opens `/dev/fuse` for reading and writing, close-on-exec. The descriptor has no session until it is
/// given to a mount or to [`clone_channel`].
///
/// # Errors
/// ENOENT or ENODEV without the FUSE module, EACCES or EPERM where the device is not ours to use.
pub fn open() -> Result<OwnedFd> {
    rustix::fs::open(c"/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Opens a further channel of the session behind `session` (`FUSE_DEV_IOC_CLONE`). It has its own
/// list of requests being processed: a reply must go to the channel that its request came from.
///
/// # Errors
/// EINVAL when `session` is not a FUSE device or not mounted yet, and those of [`open`].
pub fn clone_channel(session: BorrowedFd<'_>) -> Result<OwnedFd> {
    let channel = open()?;
    let session = session.as_raw_fd().cast_unsigned();
    // SAFETY: CLONE reads one u32, which `session` is and stays for the length of the call.
    let answer = unsafe {
        libc::ioctl(
            channel.as_raw_fd(),
            CLONE as libc::Ioctl,
            &raw const session,
        )
    };
    check_int(answer)?;
    Ok(channel)
}

/// Registers `file` as a backing file of the session behind `device` and gives its id, which is
/// above zero. The kernel keeps the *path* and the calling thread's credentials, and opens the file
/// again with them for each passthrough open; `file` may be `O_PATH` and may be closed at once.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN in the initial user namespace or without passthrough negotiated,
/// EISDIR or EINVAL for what is no regular file, ELOOP when the file system beneath is stacked too
/// deep.
pub fn backing_open(device: impl AsFd, file: BorrowedFd<'_>) -> Result<i32> {
    let map = BackingMap {
        fd: file.as_raw_fd(),
        flags: 0,
        padding: 0,
    };
    let device = device.as_fd().as_raw_fd();
    // SAFETY: BACKING_OPEN reads one fuse_backing_map, which `map` is.
    let answer = unsafe { libc::ioctl(device, BACKING_OPEN as libc::Ioctl, &raw const map) };
    check_int(answer)
}

/// Closes a backing id. Files that were opened with it keep their reference.
///
/// # Errors
/// ENOENT for an id that is not registered; EPERM as [`backing_open`].
pub fn backing_close(device: impl AsFd, id: i32) -> Result<()> {
    let id = id.cast_unsigned();
    let device = device.as_fd().as_raw_fd();
    // SAFETY: BACKING_CLOSE reads one u32, which `id` is.
    let answer = unsafe { libc::ioctl(device, BACKING_CLOSE as libc::Ioctl, &raw const id) };
    check_int(answer).map(drop)
}

/// Makes the later mount wait for the reply to INIT and fail with it (`FUSE_DEV_IOC_SYNC_INIT`, Linux
/// 6.18). Another thread than the mounting one must then answer INIT.
///
/// # Errors
/// ENOTTY on a kernel that does not know it, EINVAL when the device is mounted already.
pub fn sync_init(device: impl AsFd) -> Result<()> {
    let device = device.as_fd().as_raw_fd();
    // SAFETY: SYNC_INIT takes no argument.
    let answer = unsafe { libc::ioctl(device, SYNC_INIT as libc::Ioctl, 0) };
    check_int(answer).map(drop)
}

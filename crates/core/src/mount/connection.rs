//! Control of a connection from outside: by the control file system of FUSE
//! (`Documentation/filesystems/fuse/fuse.rst`, "Control filesystem"), and by its backing device
//! (`Documentation/ABI/testing/sysfs-class-bdi`).

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags, fsconfig_create, fsmount, fsopen,
    unmount,
};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use thrufs_abi::{NodeId, Notification};

/// The usual mount point of the control file system.
const USUAL_PLACE: &str = "/sys/fs/fuse/connections";

/// Aborts a connection: its requests, answered or not, fail. `connection` is the minor device number of
/// its mounts, which stay and answer ENOTCONN.
///
/// # Errors
/// As [`abort_file`].
pub fn abort_connection(connection: u32) -> io::Result<()> {
    abort_by(&abort_file(connection)?)
}

/// Opens the file that aborts a connection. It belongs to the connection, not to its number, which is
/// reused: open it while the connection lives.
///
/// # Errors
/// ENOENT when the connection has ended, EACCES for another user's. EPERM without privilege, or in a user
/// namespace, where the control file system is not mounted.
pub fn abort_file(connection: u32) -> io::Result<OwnedFd> {
    let name = format!("{connection}/abort");
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let usual = rustix::fs::open(format!("{USUAL_PLACE}/{name}"), flags, Mode::empty());
    match usual {
        Err(Errno::NOENT) => Ok(openat(control()?, name, flags, Mode::empty())?),
        opened => Ok(opened?),
    }
}

/// Aborts the connection of an [`abort_file`]; no effect on one that has ended.
pub fn abort_by(file: impl AsFd) -> io::Result<()> {
    rustix::io::write(file, b"1")?;
    Ok(())
}

/// Makes the kernel ask again for names, listings and the root, at their next use. To be called before a connection
/// is aborted whose answers are valid for long: an aborted one refuses what is asked, and goes on showing what is
/// cached. What is open, or a working directory, keeps its attributes. Before 7.44 (Linux 6.16), only the root is
/// asked for again.
///
/// `device` is a descriptor of the connection. An unmount that waits for others may hold it up.
pub fn expire_cached(device: impl AsFd) {
    let root = |off| Notification::InvalInode {
        node: NodeId::ROOT,
        off,
        len: 0,
    };
    for notification in [Notification::IncEpoch, root(0)] {
        if let Some(bytes) = notification.encode() {
            // What the kernel does not know it need not drop.
            let _ = rustix::io::write(&device, &bytes);
        }
    }
}

/// Aborts the connection of the mount on `target`, which stays: for root where the control file system is
/// not available.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN, EINVAL where nothing is mounted.
pub fn abort_mounted(target: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // O_PATH sends no request. MNT_FORCE aborts the connection of a mount in use, and leaves it mounted.
    let _in_use = rustix::fs::open(target, flags, Mode::empty())?;
    match unmount(target, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW) {
        Err(Errno::BUSY) | Ok(()) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Sets the readahead to `bytes`, rounded down to KiB. INIT grants at most the 128 KiB that the kernel
/// starts with. More makes sequential reads faster and page faults of maps slower: they read as much.
/// `connection` is the minor device number of its mounts.
///
/// # Errors
/// EACCES without privilege, ENOENT without sysfs or such a connection.
pub fn set_readahead(connection: u32, bytes: u32) -> io::Result<()> {
    let path = format!("/sys/class/bdi/0:{connection}/read_ahead_kb");
    std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| io::Write::write_all(&mut file, (bytes >> 10).to_string().as_bytes()))
}

/// The control file system, mounted detached.
fn control() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

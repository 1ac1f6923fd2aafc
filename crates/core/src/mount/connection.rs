//! What is done to a connection from outside: by the control file system of FUSE
//! (`Documentation/filesystems/fuse/fuse.rst`, "Control filesystem"), and by its entry among the
//! backing devices (`Documentation/ABI/testing/sysfs-class-bdi`).

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags, fsconfig_create, fsmount, fsopen,
    unmount,
};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Where it is mounted, if it is.
const USUAL_PLACE: &str = "/sys/fs/fuse/connections";

/// Aborts a connection: its requests, answered or not, end with an error. `connection` is the minor
/// device number of its mounts, which stay and answer ENOTCONN from now on.
///
/// # Errors
///
/// As [`abort_file`].
pub fn abort_connection(connection: u32) -> io::Result<()> {
    abort_by(&abort_file(connection)?)
}

/// The file by which a connection is aborted. It belongs to the connection and not to its number, which
/// another has when this one is gone; so whoever will have to abort opens it while the connection lives.
///
/// # Errors
///
/// ENOENT when there is none any more, EACCES for another user's. EPERM for an ordinary user, or
/// in a user namespace, where the control file system is not mounted.
pub fn abort_file(connection: u32) -> io::Result<OwnedFd> {
    let name = format!("{connection}/abort");
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let usual = rustix::fs::open(format!("{USUAL_PLACE}/{name}"), flags, Mode::empty());
    match usual {
        Err(Errno::NOENT) => Ok(openat(control()?, name, flags, Mode::empty())?),
        opened => Ok(opened?),
    }
}

/// Aborts the connection whose [`abort_file`] this is; one that has ended already is none the worse.
///
/// # Errors
///
/// None that is known.
pub fn abort_by(file: impl AsFd) -> io::Result<()> {
    rustix::io::write(file, b"1")?;
    Ok(())
}

/// Aborts the connection of what is mounted on `target`, and leaves it mounted: for root where there is no
/// control file system to be had.
///
/// # Errors
///
/// EPERM without CAP_SYS_ADMIN, EINVAL where nothing is mounted.
pub fn abort_mounted(target: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Nobody is asked for that, and what is in use is not unmounted.
    let _in_use = rustix::fs::open(target, flags, Mode::empty())?;
    match unmount(target, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW) {
        Err(Errno::BUSY) | Ok(()) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Lets the kernel read ahead by up to `bytes`, rounded down to KiB. INIT can grant no more than the
/// 128 KiB that the kernel starts with. More makes reading from the front to the back faster, and
/// page faults in maps dearer: they read as much, around them. `connection` is the minor device
/// number of its mounts.
///
/// # Errors
///
/// EACCES without privilege, ENOENT without sysfs or when there is no such connection.
pub fn set_readahead(connection: u32, bytes: u32) -> io::Result<()> {
    let path = format!("/sys/class/bdi/0:{connection}/read_ahead_kb");
    std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| io::Write::write_all(&mut file, (bytes >> 10).to_string().as_bytes()))
}

/// The control file system, mounted where nobody else sees it.
fn control() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

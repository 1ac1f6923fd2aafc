//! What is done to a connection from outside: by the control file system of FUSE
//! (`Documentation/filesystems/fuse/fuse.rst`, "Control filesystem"), and by its entry among the
//! backing devices (`Documentation/ABI/testing/sysfs-class-bdi`).

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::io;
use std::os::fd::OwnedFd;

/// Where it is mounted, if it is.
const USUAL_PLACE: &str = "/sys/fs/fuse/connections";

/// Aborts a connection: its requests, answered or not, end with an error. `connection` is the minor
/// device number of its mounts. As long as it is mounted, [`unmount_by_force`] does the same.
///
/// # Errors
///
/// ENOENT when there is none any more, EACCES for another user's. EPERM for an ordinary user where
/// the control file system is not mounted.
///
/// [`unmount_by_force`]: super::unmount_by_force
pub fn abort_connection(connection: u32) -> io::Result<()> {
    let name = format!("{connection}/abort");
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let usual = rustix::fs::open(format!("{USUAL_PLACE}/{name}"), flags, Mode::empty());
    let file = match usual {
        Err(Errno::NOENT) => openat(control()?, name, flags, Mode::empty())?,
        opened => opened?,
    };
    rustix::io::write(file, b"1")?;
    Ok(())
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

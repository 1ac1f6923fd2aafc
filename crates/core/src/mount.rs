//! Mounting and unmounting a FUSE file system.
//!
//! As root: [`mount`], given an open `/dev/fuse`, by mount(2): containers' seccomp filters permit it wherever they
//! permit mounting, and it has room for any source, where a parameter of the mount API has 255 bytes. As an
//! unprivileged user: [`mount_unprivileged`] by the set-user-id program `fusermount3`, which returns the open
//! device. The kernel sends INIT and waits for its reply; with `FUSE_DEV_IOC_SYNC_INIT` (see [`open_device`]) the
//! mount call itself waits for it, so another thread or process must answer it.

mod connection;
mod error;
mod helper;
mod mount_call;
mod options;
mod place;

pub use connection::{
    abort_by, abort_connection, abort_file, abort_mounted, expire_cached, set_readahead,
};
pub use error::{MountError, device_advice};
pub(crate) use helper::{AutoUnmount, mount_by_helper};
pub use helper::{mount_unprivileged, unmount_unprivileged, unprivileged_helper};
pub use options::MountOptions;

use error::unmount_error;
use place::{Place, open_target};
use rustix::mount::{UnmountFlags, unmount as unmount_call};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use thrufs_sys::fuse_dev;

/// Opens `/dev/fuse` for one mount, and returns whether the mount call will wait for the reply to INIT
/// (`FUSE_DEV_IOC_SYNC_INIT`, Linux 6.18).
///
/// # Errors
/// [`MountError::Device`].
pub fn open_device() -> Result<(OwnedFd, bool), MountError> {
    let device = fuse_dev::open().map_err(|errno| MountError::Device(errno.into()))?;
    let waits = fuse_dev::sync_init(device.as_fd()).is_ok();
    Ok((device, waits))
}

/// Mounts the file system served through `device` on `target`. Needs CAP_SYS_ADMIN.
///
/// # Errors
/// See [`MountError`].
pub fn mount(device: impl AsFd, target: &Path, options: &MountOptions) -> Result<(), MountError> {
    mount_on(device, open_target(target)?, target, options)
}

/// As [`mount`], on an open directory (`O_PATH` suffices), whatever `target` leads to by now; that is its name in
/// messages.
///
/// # Errors
/// See [`MountError`].
pub fn mount_on(
    device: impl AsFd,
    place: impl AsFd,
    target: &Path,
    options: &MountOptions,
) -> Result<(), MountError> {
    let place = Place::of(&place, target);
    place.check()?;
    mount_call::mount(device.as_fd(), &place, options)
}

/// Changes the flags of a mount, whose open root is `root` (`O_PATH` suffices); `target` is its name in messages. As for
/// `MS_REMOUNT` of mount(2), `ro` and `synchronous` also concern its other places, and times of access stay as they are:
/// their flags are without effect on FUSE. Needs CAP_SYS_ADMIN.
///
/// # Errors
/// [`MountError::NotPermitted`], [`MountError::Kernel`] (EINVAL where `root` is not that of a mount).
pub fn remount(root: impl AsFd, target: &Path, options: &MountOptions) -> Result<(), MountError> {
    mount_call::remount(&Place::of(&root, target), options)
}

/// Unmounts `target`; with `lazy`, also when it is in use: detaches it at once, and ends with its last
/// use.
///
/// # Errors
/// [`MountError::Unmount`]; EBUSY when it is in use.
pub fn unmount(target: &Path, lazy: bool) -> Result<(), MountError> {
    let flags = if lazy {
        UnmountFlags::DETACH
    } else {
        UnmountFlags::empty()
    };
    unmount_call(target, flags | UnmountFlags::NOFOLLOW)
        .map_err(|errno| unmount_error(target, errno.into()))
}

/// Unmounts `target` and aborts its connection: requests in progress, answered or not, fail. For a server
/// that cannot end otherwise.
///
/// # Errors
/// [`MountError::Unmount`].
pub fn unmount_by_force(target: &Path) -> Result<(), MountError> {
    let flags = UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    unmount_call(target, flags).map_err(|errno| unmount_error(target, errno.into()))
}

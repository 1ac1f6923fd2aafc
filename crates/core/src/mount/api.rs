//! Mounting by the mount API: `fsopen(2)`, `fsconfig(2)`, `fsmount(2)`, `move_mount(2)`.

use super::error::{MountError, kernel_error};
use super::options::{MountOptions, parameters};
use super::place::Place;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};
use std::os::fd::{BorrowedFd, OwnedFd};

/// Longest value of a parameter (`fsconfig(2)`, without its NUL). Paths can be longer.
const VALUE_BYTES_MAX: usize = 255;

/// Whether the source and the type are short enough for this API.
pub(super) fn can_name(options: &MountOptions) -> bool {
    let subtype = options.subtype.as_deref().unwrap_or_default();
    options.source.len().max(subtype.len()) <= VALUE_BYTES_MAX
}

/// A file system to be configured.
///
/// # Errors
/// ENOSYS without the mount API.
pub(super) fn open() -> rustix::io::Result<OwnedFd> {
    fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)
}

/// Creates the file system of `context` and mounts it.
///
/// # Errors
/// [`MountError::Kernel`].
pub(super) fn mount(
    context: &OwnedFd,
    device: BorrowedFd<'_>,
    place: &Place<'_>,
    options: &MountOptions,
) -> Result<(), MountError> {
    configure(context, device, options)
        .and_then(|()| fsconfig_create(context).map_err(|errno| ("create", errno)))
        .map_err(|(step, errno)| kernel_error(place.name, step, errno, messages(context)))?;
    let attributes = options.attributes;
    let mounted = fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        .map_err(|errno| kernel_error(place.name, "fsmount", errno, messages(context)))?;
    move_mount(
        mounted,
        "",
        place.directory,
        "",
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
    )
    .map_err(|errno| kernel_error(place.name, "move_mount", errno, String::new()))
}

fn configure(
    context: &OwnedFd,
    device: BorrowedFd<'_>,
    options: &MountOptions,
) -> Result<(), (&'static str, Errno)> {
    let set = |key: &'static str, value: &str| {
        fsconfig_set_string(context, key, value).map_err(|errno| (key, errno))
    };
    let flag = |key: &'static str| fsconfig_set_flag(context, key).map_err(|errno| (key, errno));
    set("source", &options.source)?;
    if let Some(subtype) = &options.subtype {
        set("subtype", subtype)?;
    }
    for (key, value) in parameters(device, options) {
        match value {
            Some(value) => set(key, &value)?,
            None => flag(key)?,
        }
    }
    if options.is_read_only() {
        flag("ro")?;
    }
    if options.synchronous {
        flag("sync")?;
    }
    Ok(())
}

/// The kernel's messages about a refused mount (`fsopen(2)`): lines that start with their level.
fn messages(context: &OwnedFd) -> String {
    const LINES_MAX: usize = 16;
    let mut log = String::new();
    let mut line = [0; 512];
    for _ in 0..LINES_MAX {
        match rustix::io::read(context, &mut line) {
            Ok(length) if length > 0 => {
                log.push_str("; ");
                log.push_str(String::from_utf8_lossy(&line[..length]).trim());
            }
            _ => break,
        }
    }
    log
}

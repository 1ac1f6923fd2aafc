//! The call of `mount(2)`.

use super::error::MountError;
use super::options::{MountOptions, parameters};
use super::place::Place;
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountFlags, mount as mount_call, mount_remount};
use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd};

const ATIME: MountAttrFlags = MountAttrFlags::MOUNT_ATTR__ATIME;

/// Mounts in one call. The kernel logs the reason of a failure, if any.
///
/// # Errors
/// [`MountError::NotPermitted`], [`MountError::Kernel`].
pub(super) fn mount(
    device: BorrowedFd<'_>,
    place: &Place<'_>,
    options: &MountOptions,
) -> Result<(), MountError> {
    let failed = failed_on(place);
    let flags = flags(options).map_err(&failed)?;
    let list = CString::new(option_list(device, options)).expect("words and numbers without NUL");
    mount_call(
        options.source.as_str(),
        path_of(place),
        kind(options),
        flags,
        list.as_c_str(),
    )
    .map_err(failed)
}

/// Changes flags of the mount whose root the place is. Without any flag of them, the kernel keeps the rules for times of
/// access.
///
/// # Errors
/// As [`mount`].
pub(super) fn remount(place: &Place<'_>, options: &MountOptions) -> Result<(), MountError> {
    let failed = failed_on(place);
    let mut options = options.clone();
    options.attributes -= ATIME | MountAttrFlags::MOUNT_ATTR_NODIRATIME;
    let flags = flags(&options).map_err(&failed)?;
    mount_remount(path_of(place), flags, "").map_err(failed)
}

fn path_of(place: &Place<'_>) -> String {
    format!("/proc/self/fd/{}", place.directory.as_raw_fd())
}

fn failed_on(place: &Place<'_>) -> impl Fn(Errno) -> MountError {
    let path = place.name;
    move |errno| match errno {
        Errno::PERM => MountError::NotPermitted(path.into()),
        other => MountError::Kernel {
            path: path.into(),
            source: other.into(),
        },
    }
}

/// `fuse.SUBTYPE`: the kernel splits it at the first dot, and refuses an empty rest.
fn kind(options: &MountOptions) -> String {
    match options.subtype.as_deref() {
        None | Some("") => "fuse".to_owned(),
        Some(subtype) => format!("fuse.{subtype}"),
    }
}

/// The options string. The kernel splits it at commas and knows no escape, so it holds words and numbers
/// only. The source and the subtype, which may have commas, are arguments of their own.
fn option_list(device: BorrowedFd<'_>, options: &MountOptions) -> String {
    let words: Vec<String> = parameters(device, options)
        .into_iter()
        .map(|(key, value)| match value {
            Some(value) => format!("{key}={value}"),
            None => key.to_owned(),
        })
        .collect();
    words.join(",")
}

/// The attributes as flags of `mount(2)`.
///
/// # Errors
/// EINVAL for attributes without a flag and for contradictions.
fn flags(options: &MountOptions) -> rustix::io::Result<MountFlags> {
    let attributes = options.attributes;
    let mut flags = match attributes & ATIME {
        // Zero, and the default.
        MountAttrFlags::MOUNT_ATTR_RELATIME => MountFlags::empty(),
        MountAttrFlags::MOUNT_ATTR_NOATIME => MountFlags::NOATIME,
        MountAttrFlags::MOUNT_ATTR_STRICTATIME => MountFlags::STRICTATIME,
        _ => return Err(Errno::INVAL),
    };
    let mut left = attributes - ATIME;
    for (attribute, flag) in [
        (MountAttrFlags::MOUNT_ATTR_RDONLY, MountFlags::RDONLY),
        (MountAttrFlags::MOUNT_ATTR_NOSUID, MountFlags::NOSUID),
        (MountAttrFlags::MOUNT_ATTR_NODEV, MountFlags::NODEV),
        (MountAttrFlags::MOUNT_ATTR_NOEXEC, MountFlags::NOEXEC),
        (
            MountAttrFlags::MOUNT_ATTR_NODIRATIME,
            MountFlags::NODIRATIME,
        ),
        (
            MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW,
            MountFlags::NOSYMFOLLOW,
        ),
    ] {
        flags.set(flag, left.contains(attribute));
        left -= attribute;
    }
    flags.set(MountFlags::SYNCHRONOUS, options.synchronous);
    if left.is_empty() {
        Ok(flags)
    } else {
        Err(Errno::INVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn with(attributes: MountAttrFlags) -> MountOptions {
        let mut options = MountOptions::new("a source, with a comma");
        options.attributes = attributes;
        options
    }

    #[test]
    fn the_option_list_of_mount_2() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let number = file.as_raw_fd();
        let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
        let first = format!("fd={number},rootmode=40000,user_id={user},group_id={group}");
        let mut options = with(MountAttrFlags::empty());
        options.subtype = Some("a,subtype".to_owned());
        let list = option_list(file.as_fd(), &options);
        assert_eq!(list, format!("{first},default_permissions"));
        options.allow_other = true;
        let list = option_list(file.as_fd(), &options);
        assert_eq!(list, format!("{first},default_permissions,allow_other"));
        options.default_permissions = false;
        options.read_bytes_max = Some(65_536);
        let list = option_list(file.as_fd(), &options);
        assert_eq!(list, format!("{first},allow_other,max_read=65536"));
    }

    #[test]
    fn the_type_has_the_subtype() {
        let mut options = with(MountAttrFlags::empty());
        assert_eq!(kind(&options), "fuse");
        options.subtype = Some(String::new());
        assert_eq!(kind(&options), "fuse");
        options.subtype = Some("thrufs".to_owned());
        assert_eq!(kind(&options), "fuse.thrufs");
    }

    #[test]
    fn every_attribute_has_its_flag() {
        // The numbers are those of linux/mount.h.
        for (attribute, flag) in [
            (0, 0),
            (0x01, 1),
            (0x02, 2),
            (0x04, 4),
            (0x08, 8),
            (0x10, 1 << 10),
            (0x20, 1 << 24),
            (0x80, 1 << 11),
            (0x20_0000, 1 << 8),
            (0x01 | 0x08 | 0x20, 1 | 8 | 1 << 24),
        ] {
            let options = with(MountAttrFlags::from_bits_retain(attribute));
            let flags = flags(&options).map(|flags| flags.bits());
            assert_eq!(flags, Ok(flag), "{attribute:#x}");
        }
        let mut options = with(MountAttrFlags::MOUNT_ATTR_NODEV);
        options.synchronous = true;
        assert_eq!(flags(&options).map(|flags| flags.bits()), Ok(4 | 16));
        // Two kinds of atime; and an id mapping, which mount(2) cannot make.
        for attribute in [0x30, 0x10_0000] {
            let options = with(MountAttrFlags::from_bits_retain(attribute));
            assert_eq!(flags(&options), Err(Errno::INVAL), "{attribute:#x}");
        }
    }
}

//! The options of a mount, and those of them that FUSE itself reads.

use rustix::mount::MountAttrFlags;
use rustix::process::{getgid, getuid};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Mount options.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The source in `/proc/mounts`.
    pub source: String,
    /// The subtype: `/proc/mounts` shows the type `fuse.SUBTYPE`.
    pub subtype: Option<String>,
    /// `ro`, `nosuid`, `nodev`, `noexec`, the family of `atime`, `nosymfollow`.
    pub attributes: MountAttrFlags,
    /// Users other than the mounting one may use it.
    pub allow_other: bool,
    /// The kernel checks permissions by mode and ACL.
    pub default_permissions: bool,
    /// Writes are on the disk when they return (`sync`). Root only.
    pub synchronous: bool,
    /// Most bytes in one READ; the kernel's own limit when none.
    pub read_bytes_max: Option<u32>,
    /// Unmounts also when the serving process is killed: `fusermount3` mounts, also for root, and stays.
    /// Without it, the mount answers ENOTCONN until it is unmounted, which keeps programs from writing to the
    /// directory beneath. For [`mount`](crate::mount()) only.
    pub auto_unmount: bool,
}

impl MountOptions {
    /// With permissions checked by the kernel, and for the mounting user only.
    pub fn new(source: impl Into<String>) -> MountOptions {
        MountOptions {
            source: source.into(),
            subtype: None,
            attributes: MountAttrFlags::empty(),
            allow_other: false,
            default_permissions: true,
            synchronous: false,
            read_bytes_max: None,
            auto_unmount: false,
        }
    }

    /// Whether the mount is read-only.
    pub fn is_read_only(&self) -> bool {
        self.attributes.contains(MountAttrFlags::MOUNT_ATTR_RDONLY)
    }
}

/// The FUSE options of a mount, besides its source, its type and the general flags.
pub(super) fn parameters(
    device: BorrowedFd<'_>,
    options: &MountOptions,
) -> Vec<(&'static str, Option<String>)> {
    let mut parameters = vec![
        ("fd", Some(device.as_raw_fd().to_string())),
        ("rootmode", Some("40000".to_owned())),
        ("user_id", Some(getuid().as_raw().to_string())),
        ("group_id", Some(getgid().as_raw().to_string())),
    ];
    if options.default_permissions {
        parameters.push(("default_permissions", None));
    }
    if options.allow_other {
        parameters.push(("allow_other", None));
    }
    if let Some(bytes) = options.read_bytes_max {
        parameters.push(("max_read", Some(bytes.to_string())));
    }
    parameters
}

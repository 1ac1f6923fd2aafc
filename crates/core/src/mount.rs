//! Mounting and unmounting a FUSE file system.
//!
//! As root: [`mount`], given an open `/dev/fuse`, by the mount API (Linux 5.2) or, where that fails, by
//! mount(2). As an unprivileged user: [`mount_unprivileged`] by the set-user-id program `fusermount3`, which
//! returns the open device. The kernel sends INIT and waits for its reply; with `FUSE_DEV_IOC_SYNC_INIT`
//! (see [`open_device`]) the mount call itself waits for it, so another thread or process must answer it.

mod api;
mod classic;
mod connection;
mod helper;

pub use connection::{abort_by, abort_connection, abort_file, abort_mounted, set_readahead};
pub(crate) use helper::{AutoUnmount, mount_with_auto_unmount};
pub use helper::{mount_unprivileged, unmount_unprivileged};

use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, UnmountFlags, unmount as unmount_call};
use rustix::process::{getgid, getuid};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use thrufs_sys::fuse_dev;

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

/// Why mounting or unmounting failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// `/dev/fuse` cannot be opened.
    #[error("cannot open /dev/fuse: {0}; {advice}", advice = device_advice(.0))]
    Device(#[source] io::Error),
    /// The mount point cannot be used.
    #[error("cannot use the mount point {path}: {source}")]
    Target {
        /// The mount point.
        path: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
    /// The file system refuses this mount as unsafe.
    #[error("not mounted on {path}: {why}")]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// The file system's reason.
        why: &'static str,
    },
    /// A directory cannot be mounted on a file.
    #[error("the mount point {0} is not a directory")]
    NotADirectory(PathBuf),
    /// This user may not mount here.
    #[error(
        "not permitted to mount on {0}: that needs CAP_SYS_ADMIN; an ordinary user mounts through \
         fusermount3 (package fuse3)"
    )]
    NotPermitted(PathBuf),
    /// The kernel refused.
    #[error("the kernel refused to mount on {path} ({step}): {source}{log}")]
    Kernel {
        /// The mount point.
        path: PathBuf,
        /// The parameter or call that it refused.
        step: &'static str,
        /// Its error.
        source: io::Error,
        /// Its message, if it gave one.
        log: String,
    },
    /// The set-user-id helper is missing.
    #[error("fusermount3 was not found: install the package fuse3, or mount as root")]
    NoHelper,
    /// The helper refused.
    #[error("fusermount3 failed: {0}")]
    Helper(String),
    /// The helper could not be run.
    #[error("cannot run fusermount3: {0}")]
    HelperRun(#[source] io::Error),
    /// Unmounting failed.
    #[error("cannot unmount {path}: {source}{hint}")]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// Why not.
        source: io::Error,
        /// What can be done about it.
        hint: &'static str,
    },
}

impl MountError {
    /// Whether an unmount failed because the mount is in use. `fusermount3` reports that by an untranslated
    /// message only.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Unmount { source, .. } => source.kind() == io::ErrorKind::ResourceBusy,
            Self::Helper(words) => words.contains("Device or resource busy"),
            _ => false,
        }
    }
}

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
    check_target(target)?;
    if !api::can_name(options) {
        return classic::mount(device.as_fd(), target, options);
    }
    match api::open() {
        Ok(context) => api::mount(&context, device.as_fd(), target, options),
        // An older kernel, or a seccomp filter without the API (old ones return EPERM). If privilege is
        // missing, mount(2) reports that, too.
        Err(errno @ (Errno::NOSYS | Errno::PERM)) => {
            tracing::debug!(%errno, "no mount API: mounting by mount(2)");
            classic::mount(device.as_fd(), target, options)
        }
        Err(errno) => Err(kernel_error(target, "fsopen", errno, String::new())),
    }
}

/// The FUSE options of a mount, besides its source, its type and the general flags.
fn parameters(
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

fn check_target(target: &Path) -> Result<(), MountError> {
    // Attributes of a dead mount may be cached; statfs(2) is not.
    let asked = rustix::fs::statfs(target).and_then(|_| rustix::fs::stat(target));
    let stat = asked.map_err(|errno| {
        // Over io_uring, the last requests fail with one of the others.
        let dead = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];
        let source = if dead.contains(&errno) {
            io::Error::other("a dead FUSE mount is here (its server has ended): unmount it first")
        } else {
            errno.into()
        };
        MountError::Target {
            path: target.into(),
            source,
        }
    })?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(()),
        _ => Err(MountError::NotADirectory(target.into())),
    }
}

fn kernel_error(path: &Path, step: &'static str, errno: Errno, log: String) -> MountError {
    MountError::Kernel {
        path: path.into(),
        step,
        source: errno.into(),
        log,
    }
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

/// What to do about `/dev/fuse`.
fn device_advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EACCES) => {
            "this user may not open it: as root, `chmod 666 /dev/fuse`, as most systems have it"
        }
        Some(libc::EPERM) => "a container must be given the device (`--device /dev/fuse`)",
        _ => "is FUSE in this kernel (try `modprobe fuse`)?",
    }
}

fn unmount_error(path: &Path, source: io::Error) -> MountError {
    let hint = match source.raw_os_error() {
        Some(libc::EBUSY) => {
            "; programs have files open there or work there (see `fuser -m`), or unmount lazily"
        }
        Some(libc::EINVAL) => "; nothing is mounted there",
        Some(libc::EPERM) => "; that needs CAP_SYS_ADMIN, or fusermount3 for one's own mounts",
        _ => "",
    };
    MountError::Unmount {
        path: path.into(),
        source,
        hint,
    }
}

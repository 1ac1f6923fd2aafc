//! Why mounting or unmounting failed, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

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
    #[error("the kernel refused to mount on {path}: {source} (its log may say why: dmesg)")]
    Kernel {
        /// The mount point.
        path: PathBuf,
        /// Its error.
        source: io::Error,
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

const GIVE_DEVICE: &str = "a sandbox or a container must be given the device: `--also-write /dev/fuse` \
                           (thrufs run), `--device /dev/fuse` (podman, docker)";

/// What to do about `/dev/fuse`.
#[must_use]
pub fn device_advice(error: &io::Error) -> &'static str {
    let is_fuse_there = || {
        let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        known.lines().any(|line| line == "nodev\tfuse")
    };
    match error.raw_os_error() {
        Some(libc::EACCES) => {
            "this user may not open it: as root, `chmod 666 /dev/fuse`, as most systems have it"
        }
        Some(libc::EPERM) => GIVE_DEVICE,
        Some(libc::ENOENT) if is_fuse_there() => GIVE_DEVICE,
        _ => "is FUSE in this kernel (try `modprobe fuse`)?",
    }
}

pub(super) fn unmount_error(path: &Path, source: io::Error) -> MountError {
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

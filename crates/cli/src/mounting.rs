//! Putting a configured mount into the tree, and taking it out wherever it has got to.

use crate::config::MountConfig;
use crate::mount_table::{self, DeviceNumber, Mount};
use crate::task::Task;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thrufs::MountError;
use thrufs::mount::{self, MountOptions};

/// How long to wait for whatever is mounted where a dead mount may be. The dead answer at once.
const DEAD_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether this process mounts by itself; if not, fusermount3 does it.
pub(crate) fn is_privileged() -> bool {
    rustix::process::geteuid().is_root()
}

fn options(config: &MountConfig) -> MountOptions {
    let mut options = MountOptions::new(config.fsname.to_string_lossy());
    options.subtype = Some(config.subtype.clone());
    options.attributes = config.attributes;
    options.allow_other = config.allow_other;
    options.default_permissions = config.default_permissions;
    options.synchronous = config.synchronous;
    options
}

/// Mounts as root. Blocks until the worker has answered INIT, on kernels where mounting waits.
///
/// # Errors
///
/// See [`MountError`].
pub(crate) fn mount(config: &MountConfig, device: OwnedFd) -> Result<(), MountError> {
    mount::mount(device.as_fd(), &config.mountpoint, &options(config))
}

/// Mounts with the help of fusermount3, and gives the device.
///
/// # Errors
///
/// See [`MountError`].
pub(crate) fn mount_unprivileged(config: &MountConfig) -> Result<OwnedFd, MountError> {
    for (wanted, option) in [
        (
            config.has(MountAttrFlags::MOUNT_ATTR_STRICTATIME),
            "strictatime",
        ),
        (
            config.has(MountAttrFlags::MOUNT_ATTR_NODIRATIME),
            "nodiratime",
        ),
        (
            config.has(MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW),
            "nosymfollow",
        ),
        (config.synchronous, "sync"),
    ] {
        if wanted {
            tracing::warn!("{option} has no effect: fusermount3 does not support it");
        }
    }
    mount::mount_unprivileged(&config.mountpoint, &options(config))
}

/// Unmounts as root, or with the help of fusermount3.
///
/// # Errors
///
/// See [`MountError`].
pub(crate) fn unmount(path: &Path, privileged: bool, lazy: bool) -> Result<(), MountError> {
    match privileged {
        true => mount::unmount(path, lazy),
        false => mount::unmount_unprivileged(path, lazy),
    }
}

/// The device number of the FUSE file system on `mountpoint`; `None` when there is none, or no
/// `/proc` to see it in.
pub(crate) fn device_number(mountpoint: &Path) -> Option<DeviceNumber> {
    let mounts = mount_table::all().ok()?;
    let mount = mount_table::on_top_at(&mounts, mountpoint)?;
    mount.kind.starts_with("fuse").then_some(mount.device)
}

/// Whether the connection of a `/dev/fuse` descriptor has not ended.
pub(crate) fn connection_lives(device: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&device, PollFlags::empty())];
    let at_once = Timespec::default();
    poll(&mut polled, Some(&at_once)).is_ok() && !polled[0].revents().contains(PollFlags::ERR)
}

/// Where the server's file system is to be taken away from.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) mountpoint: PathBuf,
    /// Without it, the mount point alone is known.
    pub(crate) device: Option<DeviceNumber>,
    pub(crate) privileged: bool,
}

impl Target {
    /// Takes it away from every place where it is mounted: it may have been moved, or bound
    /// elsewhere. That it is nowhere (any more) is success.
    ///
    /// # Errors
    ///
    /// See [`MountError::Unmount`]; EBUSY also when something else is mounted over it.
    pub(crate) fn unmount(&self, lazy: bool) -> Result<(), MountError> {
        self.everywhere(|path| unmount(path, self.privileged, lazy))
    }

    /// Takes it away from every place where it is mounted, in use or not, and ends the connection
    /// with it; without privilege, the connection lives as long as its server.
    ///
    /// # Errors
    ///
    /// As [`unmount`](Self::unmount).
    pub(crate) fn unmount_by_force(&self) -> Result<(), MountError> {
        if self.privileged {
            self.everywhere(mount::unmount_by_force)
        } else {
            self.unmount(true)
        }
    }

    /// Takes away what is left of it when its connection has ended.
    ///
    /// # Errors
    ///
    /// As [`unmount`](Self::unmount).
    pub(crate) fn unmount_dead(&self) -> Result<(), MountError> {
        let mut outcome = Ok(());
        for path in self.dead() {
            outcome = outcome.and(unmount(&path, self.privileged, true));
        }
        outcome
    }

    /// Where it is mounted still when its connection has ended. Its number says nothing then: with
    /// its last mount it was free, and the next mount may have it. What is dead answers ENOTCONN.
    pub(crate) fn dead(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = match (self.device, mount_table::all()) {
            (Some(device), Ok(mounts)) => mounts
                .into_iter()
                .rev()
                .filter(|mount| mount.is_fuse_on(device))
                .map(|mount| mount.path)
                .collect(),
            _ => vec![self.mountpoint.clone()],
        };
        paths.retain(|path| is_dead(path));
        paths
    }

    /// The file by which its connection is aborted, where that can be had. `device` is of that connection.
    pub(crate) fn abort_file(&self, device: impl AsFd) -> Option<OwnedFd> {
        let opened = mount::abort_file(self.device?.minor);
        // As long as it lives, the number is its own.
        opened.ok().filter(|_| connection_lives(device))
    }

    /// Ends its connection by force, and leaves it mounted, if it is: whoever waits for an answer gets an
    /// error.
    ///
    /// # Errors
    ///
    /// See [`mount::abort_mounted`]; ENOENT also when it is not known where it is mounted.
    pub(crate) fn abort(&self) -> io::Result<()> {
        let device = self.device.ok_or(io::ErrorKind::NotFound)?;
        let mounts = mount_table::all()?;
        let on_top = |mount: &&Mount| {
            mount_table::on_top_at(&mounts, &mount.path).is_some_and(|top| top.is_fuse_on(device))
        };
        let mount = mounts.iter().find(on_top);
        mount::abort_mounted(&mount.ok_or(io::ErrorKind::NotFound)?.path)
    }

    /// Has the kernel read ahead by so many bytes, where INIT could not say so.
    pub(crate) fn set_readahead(&self, bytes: u32) {
        const GRANTED_BY_INIT: u32 = 128 << 10;
        let device = self.device.filter(|_| bytes > GRANTED_BY_INIT);
        let Some(device) = device else { return };
        if let Err(error) = mount::set_readahead(device.minor, bytes) {
            tracing::warn!("max_readahead stays at 128K: {error}");
        }
    }

    fn everywhere(
        &self,
        take_away: impl Fn(&Path) -> Result<(), MountError>,
    ) -> Result<(), MountError> {
        let (Some(device), Ok(mounts)) = (self.device, mount_table::all()) else {
            return take_away(&self.mountpoint);
        };
        let mut outcome = Ok(());
        for mount in mounts.iter().rev().filter(|it| it.is_fuse_on(device)) {
            let covered = mount_table::on_top_at(&mounts, &mount.path)
                .is_none_or(|top: &Mount| top.device != device);
            let result = if covered {
                Err(MountError::Unmount {
                    path: mount.path.clone(),
                    source: io::Error::from(Errno::BUSY),
                    hint: "; something else is mounted over it",
                })
            } else {
                take_away(&mount.path)
            };
            outcome = outcome.and(result);
        }
        outcome
    }

    /// Whether it is mounted anywhere that this process sees.
    pub(crate) fn is_mounted(&self) -> bool {
        match (self.device, mount_table::all()) {
            (Some(device), Ok(mounts)) => mounts.iter().any(|mount| mount.is_fuse_on(device)),
            _ => false,
        }
    }
}

/// Whether a FUSE mount without a server lies there. One that does not answer has a server.
pub(crate) fn is_dead(path: &Path) -> bool {
    let asked = path.to_owned();
    let Ok(asking) = Task::start(move || rustix::fs::statvfs(&asked)) else {
        return false;
    };
    if !asking.is_done_within(DEAD_ANSWER_TIMEOUT) {
        tracing::warn!("the mount on {} does not answer", path.display());
        return false;
    }
    // A connection by io_uring ends a bit later than its server: who has asked before that gets one of
    // the others, which no server of ours gives.
    let ends = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];
    matches!(asking.finish(), Some(Err(errno)) if ends.contains(&errno))
}

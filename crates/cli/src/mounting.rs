//! Mounts, unmounts and aborts the file system of the server, as root or through `fusermount3`. Finds its
//! mounts by their device number, wherever they were moved or bound. Decides nothing about when: that is
//! the [supervisor's](crate::supervisor).

pub(crate) mod error;

use crate::config::MountConfig;
use crate::error::{StartupError, system_at};
use crate::lookup;
use crate::mount_table::{self, FuseFileSystem, Mount};
use crate::task::Task;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thrufs::MountError;
use thrufs::mount::{self, MountOptions};

/// For a reply of what may be a dead mount, which replies at once.
const DEAD_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Adds the mount point to a system error.
pub(crate) fn unusable<E: Into<io::Error>>(path: &Path) -> impl Fn(E) -> StartupError {
    system_at("use the mount point", path)
}

/// Whether this process can mount; otherwise fusermount3 does.
pub(crate) fn is_privileged() -> bool {
    rustix::process::geteuid().is_root()
}

fn options(config: &MountConfig) -> MountOptions {
    let mut options = MountOptions::new(match &config.fsname {
        Some(name) => name.into(),
        None => config.source.to_string_lossy(),
    });
    options.subtype = Some(config.subtype.clone());
    options.attributes = config.attributes;
    options.allow_other = config.serving.allow_other;
    options.default_permissions = config.serving.default_permissions;
    options.synchronous = config.synchronous;
    options
}

/// Mounts as root on `place`, the opened mount point. On kernels where mount(2) waits for INIT, blocks until the
/// worker has answered it.
pub(crate) fn mount(
    config: &MountConfig,
    device: OwnedFd,
    place: OwnedFd,
) -> Result<(), MountError> {
    mount::mount_on(device, place, &config.mountpoint, &options(config))
}

/// Changes the flags of the mount whose root is open, as root.
pub(crate) fn remount(config: &MountConfig, root: OwnedFd) -> Result<(), MountError> {
    mount::remount(root, &config.mountpoint, &options(config))
}

/// Mounts through fusermount3, and returns the device.
pub(crate) fn mount_unprivileged(config: &MountConfig) -> Result<OwnedFd, MountError> {
    let attributes = [
        ("noatime", MountAttrFlags::MOUNT_ATTR_NOATIME),
        ("strictatime", MountAttrFlags::MOUNT_ATTR_STRICTATIME),
        ("nodiratime", MountAttrFlags::MOUNT_ATTR_NODIRATIME),
        ("nosymfollow", MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW),
    ];
    let wanted = attributes.into_iter().filter(|(_, it)| config.has(*it));
    let synchronous = config.synchronous.then_some("sync");
    for option in wanted.map(|(option, _)| option).chain(synchronous) {
        tracing::warn!("{option} has no effect: it requires root");
    }
    mount::mount_unprivileged(&config.mountpoint, &options(config))
}

/// Unmounts as root, or through fusermount3. `id` is of the mount that is meant, where the mount table could be read.
pub(crate) fn unmount(path: &Path, id: Option<u64>, lazy: bool) -> Result<(), MountError> {
    match is_privileged() {
        true => by_its_directory(path, id, |path| mount::unmount(path, lazy)),
        false => mount::unmount_unprivileged(path, lazy),
    }
}

/// Unmounts what is at a path of the mount table. Who controls a directory above may have put a symbolic link or another
/// directory there since, which leads to another mount.
fn by_its_directory(
    path: &Path,
    id: Option<u64>,
    unmount_one: impl FnOnce(&Path) -> Result<(), MountError>,
) -> Result<(), MountError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return unmount_one(path);
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let named = |source: io::Error, hint| MountError::Unmount {
        path: path.into(),
        source,
        hint,
    };
    let parent = match lookup::without_links(parent, flags, Mode::empty()) {
        // Before Linux 5.6, or by a seccomp filter.
        Err(Errno::NOSYS | Errno::PERM) => return unmount_one(path),
        opened => opened.map_err(|errno| named(errno.into(), ""))?,
    };
    if let Some(id) = id {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let there = rustix::fs::openat(&parent, name, flags, Mode::empty());
        let found = there.map_err(io::Error::from).and_then(mount_table::id_of);
        if found.map_err(|error| named(error, ""))? != id {
            let error = "another directory is there since, which leads to another mount or to none";
            return Err(named(io::Error::other(error), ""));
        }
    }
    unmount_one(&lookup::descriptor_path(&parent).join(name)).map_err(|error| match error {
        MountError::Unmount { source, hint, .. } => named(source, hint),
        other => other,
    })
}

/// The FUSE file system on `mountpoint`; `None` without one, or without `/proc`.
pub(crate) fn fuse_on(mountpoint: &Path) -> Option<FuseFileSystem> {
    let mounts = mount_table::all().ok()?;
    mount_table::on_top_at(&mounts, mountpoint)?.fuse()
}

/// Whether the connection of this `/dev/fuse` descriptor is alive.
pub(crate) fn connection_lives(device: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&device, PollFlags::empty())];
    let at_once = Timespec::default();
    poll(&mut polled, Some(&at_once)).is_ok() && !polled[0].revents().contains(PollFlags::ERR)
}

/// How long [`expire_cached`] is waited for.
const EXPIRY_TIMEOUT: Duration = Duration::from_millis(100);

/// Makes the kernel ask again for what it has cached, by a connection that is about to be aborted: whoever looks at
/// the mount sees then that it is dead.
pub(crate) fn expire_cached(expire: impl FnOnce() + Send + 'static) {
    let _ = Task::start(expire).map(|task| task.is_done_within(EXPIRY_TIMEOUT));
}

#[derive(Debug, thiserror::Error)]
#[error(
    "a dead FUSE mount is on {0} (its server has ended): unmount it first with `thrufs unmount {0}`"
)]
pub(crate) struct DeadMount(pub(crate) PathBuf);

/// The server's file system, to be unmounted.
#[derive(Clone, Debug)]
pub(crate) struct MountTarget {
    pub(crate) mountpoint: PathBuf,
    /// Without it, only the mount point is known.
    pub(crate) mounted: Option<FuseFileSystem>,
}

impl MountTarget {
    /// Unmounts it everywhere: it may have been moved or bound. Being mounted nowhere is success.
    ///
    /// # Errors
    ///
    /// See [`MountError::Unmount`]; EBUSY also when something else is mounted over it.
    pub(crate) fn unmount(&self, lazy: bool) -> Result<(), MountError> {
        self.everywhere(|path, id| unmount(path, id, lazy))
    }

    /// Unmounts it everywhere, also while in use, and ends the connection; without privilege, the
    /// connection lives as long as its server.
    pub(crate) fn unmount_by_force(&self) -> Result<(), MountError> {
        if is_privileged() {
            self.everywhere(|path, id| by_its_directory(path, id, mount::unmount_by_force))
        } else {
            self.unmount(true)
        }
    }

    /// Unmounts its dead mounts.
    pub(crate) fn unmount_dead(&self) -> Result<(), MountError> {
        let mut outcome = Ok(());
        for (path, id) in self.dead() {
            outcome = outcome.and(unmount(&path, id, true));
        }
        outcome
    }

    /// Its mounts after the end of the connection, which return ENOTCONN: paths, and ids where known.
    pub(crate) fn dead(&self) -> Vec<(PathBuf, Option<u64>)> {
        let mut found: Vec<_> = match (&self.mounted, mount_table::all()) {
            (Some(mounted), Ok(mounts)) => mounts
                .into_iter()
                .rev()
                .filter(|mount| mount.is_of(mounted))
                .map(|mount| (mount.path, Some(mount.id)))
                .collect(),
            _ => vec![(self.mountpoint.clone(), None)],
        };
        found.retain(|(path, _)| is_dead(path));
        found
    }

    /// The fusectl file that aborts its connection, if available. `device` is of that connection.
    pub(crate) fn abort_file(&self, device: impl AsFd) -> Option<OwnedFd> {
        let opened = mount::abort_file(self.mounted.as_ref()?.device.minor);
        // The number is valid while the connection lives.
        opened.ok().filter(|_| connection_lives(device))
    }

    /// Aborts its connection without unmounting: pending requests fail.
    ///
    /// # Errors
    ///
    /// See [`mount::abort_mounted`]; ENOENT also if no mount of it is on top.
    pub(crate) fn abort(&self) -> io::Result<()> {
        let mounted = self.mounted.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mounts = mount_table::all()?;
        let on_top = |mount: &&Mount| {
            mount_table::on_top_at(&mounts, &mount.path).is_some_and(|top| top.is_of(mounted))
        };
        let mount = mounts.iter().find(on_top);
        mount::abort_mounted(&mount.ok_or(io::ErrorKind::NotFound)?.path)
    }

    /// Sets the read-ahead of the kernel, beyond what INIT grants.
    pub(crate) fn set_readahead(&self, bytes: u32) {
        const GRANTED_BY_INIT: u32 = 128 << 10;
        let mounted = self.mounted.as_ref().filter(|_| bytes > GRANTED_BY_INIT);
        let Some(mounted) = mounted else { return };
        if let Err(error) = mount::set_readahead(mounted.device.minor, bytes) {
            tracing::warn!("max_readahead stays at 128K: {error}");
        }
    }

    fn everywhere(
        &self,
        unmount_one: impl Fn(&Path, Option<u64>) -> Result<(), MountError>,
    ) -> Result<(), MountError> {
        let (Some(mounted), Ok(mounts)) = (&self.mounted, mount_table::all()) else {
            return unmount_one(&self.mountpoint, None);
        };
        let mut outcome = Ok(());
        for mount in mounts.iter().rev().filter(|it| it.is_of(mounted)) {
            let covered = mount_table::on_top_at(&mounts, &mount.path)
                .is_none_or(|top: &Mount| !top.is_of(mounted));
            let result = if covered {
                Err(MountError::Unmount {
                    path: mount.path.clone(),
                    source: io::Error::from(Errno::BUSY),
                    hint: "; something else is mounted over it",
                })
            } else {
                unmount_one(&mount.path, Some(mount.id))
            };
            outcome = outcome.and(result);
        }
        outcome
    }

    /// Whether it is mounted in this mount namespace.
    pub(crate) fn is_mounted(&self) -> bool {
        match (&self.mounted, mount_table::all()) {
            (Some(mounted), Ok(mounts)) => mounts.iter().any(|mount| mount.is_of(mounted)),
            _ => false,
        }
    }
}

/// A connection over io_uring ends after its server: earlier requests get one of the others, which our servers never
/// return.
const ENDS: [Errno; 3] = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];

/// Whether a mount, by its id, is at its path and its connection has ended: it is asked by a descriptor. Waits for its
/// server.
///
/// # Errors
///
/// ENOENT where it is not at that path; those of statfs(2), but for a connection that has ended.
pub(crate) fn has_ended(path: &Path, id: u64) -> io::Result<bool> {
    let root = lookup::without_links(path, OFlags::PATH, Mode::empty())?;
    if mount_table::id_of(root.try_clone()?)? != id {
        return Err(Errno::NOENT.into());
    }
    match rustix::fs::fstatfs(&root) {
        Err(errno) if ENDS.contains(&errno) => Ok(true),
        asked => Ok(asked.map(|_| false)?),
    }
}

/// Whether a dead FUSE mount is there. One that does not reply has a server.
pub(crate) fn is_dead(path: &Path) -> bool {
    let asked = path.to_owned();
    let Ok(asking) = Task::start(move || rustix::fs::statvfs(&asked)) else {
        return false;
    };
    let Some(answer) = asking.finish_within(DEAD_ANSWER_TIMEOUT) else {
        tracing::warn!("the mount on {} does not answer", path.display());
        return false;
    };
    answer.is_err_and(|errno| ENDS.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::mount::MountFlags;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn mounted(directory: &Path) -> PathBuf {
        let path = directory.join("mnt");
        fs::create_dir_all(&path).unwrap();
        rustix::mount::mount("test", &path, "tmpfs", MountFlags::empty(), None).unwrap();
        path
    }

    fn id_at(path: &Path) -> Option<u64> {
        mount_table::on_top_at(&mount_table::all().unwrap(), path).map(|mount| mount.id)
    }

    #[test]
    fn directory_that_is_exchanged_above_leads_to_no_other_mount() {
        if !is_privileged() {
            return eprintln!("SKIPPED directory_that_is_exchanged_above: mounting needs root");
        }
        let place = tempfile::tempdir().unwrap();
        let [above, other] = ["above", "other"].map(|name| place.path().join(name));
        let [ours, theirs] = [&above, &other].map(|directory| mounted(directory));
        let ids = [id_at(&ours), id_at(&theirs)];
        renameat_with(CWD, &above, CWD, &other, RenameFlags::EXCHANGE).unwrap();
        for lazy in [false, true] {
            let error = unmount(&ours, ids[0], lazy).unwrap_err().to_string();
            assert!(error.contains("leads to another mount"), "{error}");
        }
        by_its_directory(&ours, ids[0], mount::unmount_by_force).unwrap_err();
        assert_eq!([id_at(&theirs), id_at(&ours)], ids);
        unmount(&theirs, ids[0], false).unwrap();
        let error = unmount(&theirs, ids[0], false).unwrap_err().to_string();
        assert!(error.contains("or to none"), "{error}");
        unmount(&ours, ids[1], false).unwrap();
    }

    #[test]
    fn link_that_replaces_a_directory_above_leads_to_no_other_mount() {
        if !is_privileged() {
            return eprintln!("SKIPPED link_that_replaces_a_directory_above: mounting needs root");
        }
        let place = tempfile::tempdir().unwrap();
        let [above, other] = ["above", "other"].map(|name| place.path().join(name));
        let theirs = mounted(&other);
        symlink(&other, &above).unwrap();
        let error = unmount(&above.join("mnt"), None, true).unwrap_err();
        assert!(error.to_string().contains("above/mnt"), "{error}");
        unmount(&theirs, None, false).unwrap();
        assert_eq!(id_at(&theirs), None);
    }
}

//! A directory's parent, never above the root of the source.

use super::Tree;
use super::inode::{Inode, LowerMount};
use super::mounts::mount_id;
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use thrufs::{Errno, Result};

/// Most levels to climb to make sure that a directory is still in the served tree.
const DEPTH_MAX: usize = 4096;

impl Tree {
    /// The mount of a directory, most likely `near`.
    pub(crate) fn mount_of(
        &self,
        fd: impl AsFd,
        near: &Arc<LowerMount>,
    ) -> Result<Arc<LowerMount>> {
        let id = mount_id(fd, c"")?;
        if id == near.id {
            return Ok(Arc::clone(near));
        }
        // A mount is not released while a submount of it is in use.
        self.mounts.known(id).ok_or(Errno::ESTALE)
    }

    /// Whether a descriptor of an inode is from the mount of this process.
    pub(crate) fn is_on_its_mount(&self, fd: impl AsFd, inode: &Inode) -> bool {
        mount_id(fd, c"").is_ok_and(|id| id == inode.mount().id)
    }

    pub(crate) fn parent_of(&self, inode: &Arc<Inode>) -> Result<OwnedFd> {
        if !inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        let descriptor = self.descriptor(inode)?;
        up(descriptor.as_fd())
    }

    pub(crate) fn is_root(&self, fd: impl AsFd) -> Result<bool> {
        let root = self.descriptor(&self.root)?;
        same(fd, root.as_fd())
    }

    /// Refuses a directory that was moved out of the source on the host: its parents are not served.
    pub(crate) fn must_be_inside(&self, fd: impl AsFd) -> Result<()> {
        let mut at = up(fd.as_fd())?;
        if self.is_root(fd)? || self.is_root(&at)? {
            return Ok(());
        }
        for _ in 0..DEPTH_MAX {
            let above = up(&at)?;
            if self.is_root(&above)? {
                return Ok(());
            }
            if same(&at, &above)? {
                // The root of the host.
                return Err(Errno::ESTALE);
            }
            at = above;
        }
        Err(Errno::ESTALE)
    }
}

fn up(fd: impl AsFd) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(fd, c"..", flags, Mode::empty())?)
}

fn same(one: impl AsFd, other: impl AsFd) -> Result<bool> {
    let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

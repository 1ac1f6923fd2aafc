//! Names to nodes, and the two names that only file handles of clients need.

use crate::host::Host;
use crate::inode::Inode;
use crate::mounts::{LowerMount, mount_id};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use thrufs::{Context, Entry, Errno, Result};
use thrufs_abi::{Name, NodeId};

/// Most levels to climb when making sure that a directory still lies in the served tree.
const DEPTH_MAX: usize = 4096;

impl Host {
    pub(crate) fn lookup(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
    ) -> Result<Entry> {
        if name.is_dot() {
            return self.lookup_again(parent);
        }
        if name.is_dot_dot() {
            return self.lookup_parent(parent);
        }
        let parent = self.nodes.get(parent)?;
        let found = if self.retries.begins(context) {
            self.look_up_and_keep(context, &parent, name.as_cstr())
        } else {
            self.look_up(&parent, name.as_cstr())
        };
        match found {
            Ok((inode, stat)) => match self.is_hidden(&parent, name.as_cstr(), &stat) {
                Ok(false) => Ok(self.entry(&inode, &stat)),
                hidden => {
                    self.forget(inode.node(), 1);
                    hidden.and_then(|_| self.absent())
                }
            },
            Err(Errno::ENOENT) => self.absent(),
            Err(error) => Err(error),
        }
    }

    /// The answer to a lookup of a name that is not there.
    fn absent(&self) -> Result<Entry> {
        let timeout = self.config.negative_timeout();
        if timeout.is_zero() {
            Err(Errno::ENOENT)
        } else {
            Ok(Entry::negative(timeout))
        }
    }

    /// `.`: the node itself, which the kernel may have forgotten (`export`).
    fn lookup_again(&self, node: NodeId) -> Result<Entry> {
        if !self.config.export {
            return Err(Errno::ESTALE);
        }
        let inode = self.nodes.look_up_again(node)?;
        let stat = self.descriptor(&inode).and_then(|descriptor| {
            let flags = AtFlags::EMPTY_PATH;
            Ok(rustix::fs::statx(
                descriptor.as_fd(),
                c"",
                flags,
                crate::host::BASIC,
            )?)
        });
        match stat {
            Ok(stat) => Ok(self.entry(&inode, &stat)),
            Err(error) => {
                self.forget(node, 1);
                Err(error)
            }
        }
    }

    /// `..`: the parent of a directory, never above the root.
    fn lookup_parent(&self, node: NodeId) -> Result<Entry> {
        if !self.config.export {
            return Err(Errno::ESTALE);
        }
        let inode = self.nodes.get(node)?;
        if inode.node() == NodeId::ROOT {
            return self.lookup_again(NodeId::ROOT);
        }
        let parent = self.parent_of(&inode)?;
        self.must_be_inside(&parent)?;
        if self.is_root(&parent)? {
            return self.lookup_again(NodeId::ROOT);
        }
        // Above the root of a submount lies another mount, whose handles these are.
        let mount = self.mount_of(&parent, inode.mount())?;
        let (found, stat) = self.look_up_opened_on(&mount, None, parent.as_fd())?;
        Ok(self.entry(&found, &stat))
    }

    /// The mount that a directory lies on, most likely `near`.
    fn mount_of(&self, fd: impl AsFd, near: &Arc<LowerMount>) -> Result<Arc<LowerMount>> {
        let id = mount_id(fd, c"")?;
        if id == near.id() {
            return Ok(Arc::clone(near));
        }
        // A mount stays known as long as one beneath it is.
        self.mounts.known(id).ok_or(Errno::ESTALE)
    }

    fn parent_of(&self, inode: &Arc<Inode>) -> Result<OwnedFd> {
        if !inode.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        let descriptor = self.descriptor(inode)?;
        up(descriptor.as_fd())
    }

    fn is_root(&self, fd: impl AsFd) -> Result<bool> {
        let root = self.descriptor(&self.root)?;
        same(fd, root.as_fd())
    }

    /// A directory that was moved out of the source beneath has parents that are not served.
    fn must_be_inside(&self, fd: impl AsFd) -> Result<()> {
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
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(fd, c"..", flags, Mode::empty())?)
}

fn same(one: impl AsFd, other: impl AsFd) -> Result<bool> {
    let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

//! From a name to an inode: looks one component up, and counts the lookup. Under a policy, records the name.

use super::inode::{Inode, LowerMount, NewInode, Place};
use super::lower_inode::Descriptor;
use super::mounts::opened_identity;
use super::names::Noting;

use super::reach::ATTEMPTS_MAX;
use super::{Tree, retries};
use crate::identity::{Identity, KnownName};
use crate::stat::{stat_name, stat_with_birth};
use rustix::fs::Statx;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use thrufs::{Context, Errno, Result};
use thrufs_abi::NodeId;
use thrufs_sys::handle::{self, FileHandleBuf};

impl Tree {
    pub(crate) fn lookup_name(
        &self,
        parent: &Arc<Inode>,
        name: &CStr,
    ) -> Result<(Arc<Inode>, Statx)> {
        let parent_fd = self.descriptor(parent)?;
        self.lookup_at(parent, parent_fd.as_fd(), name)
    }

    pub(crate) fn lookup_at(
        &self,
        parent: &Arc<Inode>,
        parent_fd: impl AsFd,
        name: &CStr,
    ) -> Result<(Arc<Inode>, Statx)> {
        let parent_fd = parent_fd.as_fd();
        if !self.tracks_names {
            return self.lookup_unnamed(parent, parent_fd, name);
        }
        for _ in 0..ATTEMPTS_MAX {
            let since = self.name_changes.state();
            let (inode, stat) = self.lookup_unnamed(parent, parent_fd, name)?;
            if self.record_name(&inode, parent.node(), name.to_bytes(), &stat, since) {
                return Ok((inode, stat));
            }
            self.forget(inode.node(), 1);
        }
        let (inode, stat) = self.lookup_unnamed(parent, parent_fd, name)?;
        let name = KnownName::new(parent.node(), name.to_bytes());
        inode.names.record_uncertain(self.noting(&inode), name);
        Ok((inode, stat))
    }

    /// Where the names of an inode are recorded.
    pub(crate) fn noting(&self, inode: &Inode) -> Noting<'_> {
        Noting {
            tables: self.tables.as_deref(),
            node: inode.node(),
        }
    }

    fn lookup_unnamed(
        &self,
        parent: &Arc<Inode>,
        parent_fd: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<(Arc<Inode>, Statx)> {
        if !parent.mount().has_handles {
            return self.lookup_numbered(parent, parent_fd, name);
        }
        let mut buffer = FileHandleBuf::default();
        for _ in 0..ATTEMPTS_MAX {
            let mount_id = match handle::name_to_handle(parent_fd, name, 0, &mut buffer) {
                Ok(id) => id,
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::OVERFLOW) => {
                    return self.lookup_numbered(parent, parent_fd, name);
                }
                Err(error) => return Err(error.into()),
            };
            let stat = stat_name(parent_fd, name)?;
            let mount = if mount_id == parent.mount().id {
                Arc::clone(parent.mount())
            } else {
                match self.mounts.enter(mount_id, parent, parent_fd, name) {
                    Err(Errno::ESTALE) => continue,
                    entered => entered?,
                }
            };
            if !mount.has_handles {
                return self.lookup_numbered(parent, parent_fd, name);
            }
            // Handle and attributes are read by two calls, and must be of one file.
            match mount.handle_is_of(&buffer, stat.stx_ino) {
                Some(true) => {
                    let identity = Identity::by_handle(mount.index, &buffer);
                    return self.enter_node(identity, &mount, stat, None);
                }
                Some(false) => {}
                // Both by one descriptor.
                None => return self.lookup_numbered(parent, parent_fd, name),
            }
        }
        Err(Errno::ESTALE)
    }

    fn lookup_numbered(
        &self,
        parent: &Arc<Inode>,
        parent_fd: impl AsFd,
        name: &CStr,
    ) -> Result<(Arc<Inode>, Statx)> {
        let parent_fd = parent_fd.as_fd();
        let (fd, stat) = self.open_component(parent_fd, name)?;
        let mount = if stat.stx_mnt_id == parent.mount().id {
            Arc::clone(parent.mount())
        } else {
            self.mounts
                .enter(stat.stx_mnt_id, parent, parent_fd, name)?
        };
        let identity = opened_identity(&mount, &fd, &stat)?;
        let place = (!mount.has_handles).then(|| Place::new(Arc::clone(parent), name.to_owned()));
        self.enter_node(identity, &mount, stat, Some((fd, place)))
    }

    /// Counts a lookup of the file behind an open descriptor, found as `name` in `parent` (`None` without a
    /// name).
    pub(crate) fn lookup_opened(
        &self,
        parent: &Arc<Inode>,
        name: Option<&CStr>,
        fd: impl AsFd,
    ) -> Result<(Arc<Inode>, Statx)> {
        self.lookup_opened_on(parent.mount(), name.map(|name| (parent, name)), fd)
    }

    /// As [`lookup_opened`](Self::lookup_opened), for a file on `mount`.
    pub(crate) fn lookup_opened_on(
        &self,
        mount: &Arc<LowerMount>,
        found: Option<(&Arc<Inode>, &CStr)>,
        fd: impl AsFd,
    ) -> Result<(Arc<Inode>, Statx)> {
        let stat = stat_with_birth(fd.as_fd())?;
        let identity = opened_identity(mount, fd.as_fd(), &stat)?;
        if mount.has_handles {
            return self.enter_node(identity, mount, stat, None);
        }
        let place = found.map(|(parent, name)| Place::new(Arc::clone(parent), name.to_owned()));
        let path_fd = self.reopen(fd.as_fd(), libc::O_PATH)?;
        self.enter_node(identity, mount, stat, Some((path_fd, place)))
    }

    fn enter_node(
        &self,
        identity: Identity,
        mount: &Arc<LowerMount>,
        stat: Statx,
        held: Option<(OwnedFd, Option<Box<Place>>)>,
    ) -> Result<(Arc<Inode>, Statx)> {
        let (fd, place) = held.map_or((None, None), |(fd, place)| (Some(fd), place));
        let file_type = u32::from(stat.stx_mode) & libc::S_IFMT;
        let (inode, is_new) = self.nodes.find_or_insert(NewInode {
            identity,
            mount,
            file_type,
            place,
        })?;
        if let Some(fd) = fd.filter(|_| is_new) {
            self.descriptors.keep(&inode, fd);
        }
        Ok((inode, stat))
    }

    /// Records the name under which an inode was found, unless a name changed `since`. Returns whether it
    /// was recorded.
    pub(crate) fn record_name(
        &self,
        inode: &Inode,
        parent: NodeId,
        name: &[u8],
        stat: &Statx,
        since: Option<u64>,
    ) -> bool {
        let links = if inode.is_directory() {
            1
        } else {
            stat.stx_nlink
        };
        let holds = || since.is_some_and(|since| self.name_changes.unchanged_since(since));
        let name = KnownName::new(parent, name);
        inode
            .names
            .record_if(self.noting(inode), name, links, holds)
    }

    pub(crate) fn record_new_name(&self, inode: &Inode, parent: NodeId, name: &[u8]) {
        if self.tracks_names {
            let name = KnownName::new(parent, name);
            inode.names.record_if(self.noting(inode), name, 1, || true);
        }
    }

    /// As `lookup_name`, and what is found stays reachable without its name.
    #[cold]
    pub(crate) fn lookup_and_keep(
        &self,
        context: &Context<'_>,
        parent: &Arc<Inode>,
        name: &CStr,
    ) -> Result<(Arc<Inode>, Statx)> {
        for _ in 0..retries::ATTEMPTS_MAX {
            let (inode, stat) = self.lookup_name(parent, name)?;
            match self.descriptor(&inode) {
                // Its name is gone again, whether or not a client still has it open.
                Ok(Descriptor::Opened(_)) | Err(Errno::ESTALE) => self.forget(inode.node(), 1),
                Ok(Descriptor::Cached(fd)) => {
                    // Directories are used through the names in them, and not for long.
                    if !inode.is_directory() {
                        self.retries.keep(context.pid(), &inode, fd);
                    }
                    return Ok((inode, stat));
                }
                Err(_) => return Ok((inode, stat)),
            }
        }
        Err(Errno::ESTALE)
    }
}

//! From the record of a node to its file.
//!
//! A migrated state comes from anybody: a node is looked up by its name, in a directory of the session, as a request
//! would; or by its handle, which leads out of the tree, where
//! [`Migration::accept_handles`](crate::Migration::accept_handles) permits. After a death, the identity is that of this
//! file system, and whether it is still there is seen when it is used.

use crate::host::Host;
use crate::identity::{Identity, KnownName};
use crate::ledger::{MountRecords, NodeRecord};
use crate::stat::stat_open;
use crate::tree::{Inode, LowerMount, Place, component_of, opened_identity};
use rustix::fs::Statx;
use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use thrufs::{Errno, Result};
use thrufs_sys::handle;

pub(super) struct Found {
    pub(super) identity: Identity,
    pub(super) mount: Arc<LowerMount>,
    pub(super) mode: u32,
    /// Where it was found: the way to an inode without a handle, and a name for rules on paths.
    pub(super) place: Option<Box<Place>>,
    /// A descriptor of it, if nothing else leads to it.
    pub(super) fd: Option<OwnedFd>,
}

/// What a name leads to.
struct Entry {
    parent: Arc<Inode>,
    name: CString,
    mount: Arc<LowerMount>,
    fd: OwnedFd,
    stat: Statx,
}

/// Finds the files of nodes, and enters the mounts that they are on.
pub(super) struct Locator<'a> {
    host: &'a Host,
    /// Those that are not entered yet.
    mounts: MountRecords,
    entered: HashMap<u32, Arc<LowerMount>>,
}

impl<'a> Locator<'a> {
    pub(super) fn new(host: &'a Host, mounts: MountRecords) -> Locator<'a> {
        let entered = HashMap::from([(0, Arc::clone(host.tree.root.mount()))]);
        Locator {
            host,
            mounts,
            entered,
        }
    }

    /// The file of a migrated node.
    pub(super) fn find(&mut self, record: &NodeRecord) -> Result<Found> {
        let (found, expected) = match (&record.place, &record.identity) {
            (Some(place), expected) => (self.find_by_name(place)?, expected.as_ref()),
            (None, Some(identity)) => (self.find_by_handle(identity)?, None),
            (None, None) => return Err(Errno::ENOENT),
        };
        let is_same_type = found.mode & libc::S_IFMT == record.file_type & libc::S_IFMT;
        let is_same = expected.is_none_or(|it| it.handle() == found.identity.handle());
        (is_same_type && is_same)
            .then_some(found)
            .ok_or(Errno::ESTALE)
    }

    /// The file of a node of a process that died.
    pub(super) fn find_again(&mut self, record: &NodeRecord) -> Result<Found> {
        let identity = record.identity.clone().ok_or(Errno::ESTALE)?;
        let mount = self.mount(identity.mount())?;
        if mount.has_handles != identity.handle().is_some() {
            return Err(Errno::ESTALE);
        }
        // The client may have forgotten the directory, and know another name of the file, or have it open.
        let place = record.place.as_ref().and_then(|place| self.place(place));
        let (mode, fd) = (record.file_type, None);
        Ok(Found {
            identity,
            mount,
            mode,
            place,
            fd,
        })
    }

    /// A name in a directory of the session.
    pub(super) fn place(&self, at: &KnownName) -> Option<Box<Place>> {
        let parent = self.host.tree.nodes.get(at.directory).ok()?;
        Some(Place::new(parent, component_of(&at.name).ok()?))
    }

    fn find_by_name(&self, at: &KnownName) -> Result<Found> {
        let entry = self.open(at, None)?;
        let (mount, fd) = (entry.mount, entry.fd);
        let identity = opened_identity(&mount, &fd, &entry.stat)?;
        let has_policy = self.host.judge.has_policy();
        if has_policy && self.host.tree.nodes.find(&identity).is_some() {
            // Rules would decide by some of its names.
            return Err(Errno::ESTALE);
        }
        // Rules decide by names, and without a handle there is no other way to the inode.
        let needs_place = has_policy || !mount.has_handles;
        Ok(Found {
            identity,
            mode: u32::from(entry.stat.stx_mode),
            place: needs_place.then(|| Place::new(entry.parent, entry.name)),
            fd: (!mount.has_handles).then_some(fd),
            mount,
        })
    }

    fn find_by_handle(&mut self, was: &Identity) -> Result<Found> {
        // Rules decide by paths.
        if !self.host.config.migration.accept_handles || self.host.judge.has_policy() {
            return Err(Errno::EPERM);
        }
        let mount = self.mount(was.mount())?;
        if !mount.has_handles {
            return Err(Errno::EOPNOTSUPP);
        }
        let (kind, bytes) = was.handle().ok_or(Errno::ESTALE)?;
        let anchor = self.host.tree.anchor_of(&mount)?;
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let open = || handle::open_by_handle_parts(anchor.as_fd(), kind, bytes, flags);
        let fd = self.host.tree.with_room(|| Ok(open()?))?;
        let stat = stat_open(&fd)?;
        // As this kernel writes the handle, so that lookups find it.
        let identity = opened_identity(&mount, &fd, &stat)?;
        if identity != *was {
            return Err(Errno::ESTALE);
        }
        Ok(Found {
            identity,
            mount,
            mode: u32::from(stat.stx_mode),
            place: None,
            // The only way to an inode without names.
            fd: (stat.stx_nlink == 0).then_some(fd),
        })
    }

    /// The mount that had this number. It is entered when a node on it is found.
    fn mount(&mut self, number: u32) -> Result<Arc<LowerMount>> {
        if let Some(entered) = self.entered.get(&number) {
            return Ok(Arc::clone(entered));
        }
        let on = self.mounts.remove(&number).ok_or(Errno::ESTALE)?;
        let mount = self.open(&on, Some(number))?.mount;
        if mount.index != number {
            // Nothing is mounted there, or another one.
            return Err(Errno::ESTALE);
        }
        self.entered.insert(number, Arc::clone(&mount));
        Ok(mount)
    }

    /// What a name leads to, and the mount that it is on, by its number.
    fn open(&self, at: &KnownName, number: Option<u32>) -> Result<Entry> {
        let tree = &self.host.tree;
        let parent = tree.nodes.get(at.directory)?;
        let name = component_of(&at.name)?;
        let directory = tree.descriptor(&parent)?;
        let (fd, stat) = tree.open_component(&directory, &name)?;
        let id = stat.stx_mnt_id;
        let mount = if id == parent.mount().id {
            Arc::clone(parent.mount())
        } else if let Some(known) = tree.mounts.known(id) {
            known
        } else {
            let here = || self.mounts.iter().find(|(_, on)| *on == at);
            let number = number.or_else(|| here().map(|(number, _)| *number));
            let directory = directory.as_fd();
            tree.mounts
                .enter_as(id, &parent, directory, &name, number)?
        };
        Ok(Entry {
            parent,
            name,
            mount,
            fd,
            stat,
        })
    }
}

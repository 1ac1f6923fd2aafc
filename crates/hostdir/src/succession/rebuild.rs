//! Common to both ways of resuming: puts nodes, open files and locks back under their old numbers. Asks the
//! policy in force about each open file, and charges users' quotas again.

use super::find::{Found, Locator};
use super::stream::{NAMES_OF_NODE_MAX, NODES_WITHOUT_FILE_MAX, OPENS_MAX, invalid};
use crate::config::MigrationOnError;
use crate::files::{
    EXECUTES, NewOpenFile, OpenDirectory, OpenFile, OwnerCharges, OwnerFile, access, access_name,
    lock_kind, lower_flags,
};
use crate::host::Host;
use crate::identity::{Identity, KnownName};
use crate::ledger::{FileNote, MountRecords, NodeRecord, OpenRecord, OwnerNote};
use crate::stat::stat_open;
use crate::tree::{Inode, NewInode, Noted};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use thrufs::{Errno, LowerFile};
use thrufs_abi::NodeId;
use thrufs_policy::{Access, FilePath};
use thrufs_sys::lock::{self, LockKind, RangeLock};

/// Flags that an open file may have had.
const FLAGS: i32 = libc::O_ACCMODE
    | libc::O_APPEND
    | libc::O_SYNC
    | libc::O_DSYNC
    | libc::O_DIRECT
    | libc::O_NOATIME
    | EXECUTES;

/// Most lookups of a node: enough for ever, without a later overflow.
const LOOKUPS_MAX: u64 = 1 << 62;

pub(super) struct Rebuild<'a> {
    host: &'a Host,
    on_error: MigrationOnError,
    /// The ledger does not have the session yet (a migration), and records it.
    is_migration: bool,
    pub(super) locator: Locator<'a>,
    lost: u64,
    /// Nodes that lead to no file, or to one that another node leads to.
    without_file: u32,
}

impl<'a> Rebuild<'a> {
    /// For a migration, else after a death.
    pub(super) fn new(host: &'a Host, is_migration: bool, mounts: MountRecords) -> Rebuild<'a> {
        let on_error = match is_migration {
            true => host.config.migration.on_error,
            // There is no other process that could go on.
            false => MigrationOnError::GuestError,
        };
        host.judge.doubt_nodes();
        Rebuild {
            host,
            on_error,
            is_migration,
            locator: Locator::new(host, mounts),
            lost: 0,
            without_file: 0,
        }
    }

    /// Counts a missing part.
    pub(super) fn lose(&mut self, what: &str, number: u64, why: Errno) -> io::Result<()> {
        match self.on_error {
            MigrationOnError::Abort => Err(io::Error::other(format!(
                "{what} {number:#x} of the session cannot be had here: {why}"
            ))),
            MigrationOnError::GuestError => {
                tracing::warn!(what, number, %why, "part of a session is lost");
                self.lost += 1;
                Ok(())
            }
        }
    }

    /// What was found again; `None` for a missing part, which is counted.
    fn unless_lost<T>(
        &mut self,
        what: &str,
        number: u64,
        found: thrufs::Result<T>,
    ) -> io::Result<Option<T>> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(why) => self.lose(what, number, why).map(|()| None),
        }
    }

    /// A node of the client, found again or not.
    pub(super) fn node(&mut self, record: NodeRecord) -> io::Result<()> {
        let (node, lookups, file_type) = (record.node, record.lookups, record.file_type);
        if node == NodeId::ROOT || lookups == 0 {
            return Err(invalid("a node of the state cannot be one"));
        }
        let found = match self.is_migration {
            true => self.locator.find(&record),
            false => self.locator.find_again(&record),
        };
        let found = self.unless_lost("node", node.0, found)?;
        let is_lost = found.is_none();
        let found = found.unwrap_or_else(|| self.nowhere(node, file_type));
        if self.is_migration && (is_lost || self.host.tree.nodes.find(&found.identity).is_some()) {
            self.without_file += 1;
            if self.without_file > NODES_WITHOUT_FILE_MAX {
                return Err(invalid("too many nodes of the state have no file here"));
            }
        }
        // After a death, the ledger has the names.
        let place = found.place.as_ref().filter(|_| self.is_migration);
        let name = place.map(|at| KnownName::new(at.parent.node(), at.name.to_bytes()));
        let is_found_by_place = found.identity.handle().is_none();
        let new = NewInode {
            identity: found.identity,
            mount: &found.mount,
            file_type: file_type & libc::S_IFMT,
            place: found.place.filter(|_| is_found_by_place),
        };
        let lookups = lookups.min(LOOKUPS_MAX);
        let inode = self
            .host
            .tree
            .nodes
            .insert_at(node, lookups, new, self.is_migration)
            .ok_or_else(|| invalid(format!("there can be no node {:#x}", node.0)))?;
        inode.noted.record_mode(found.mode);
        inode.dax.resume(record.dax);
        if let Some(name) = name {
            let noting = self.host.tree.noting(&inode);
            inode.names.record_if(noting, name, u32::MAX, || true);
        }
        if let Some(fd) = found.fd {
            self.host.tree.descriptors.keep(&inode, fd);
        }
        Ok(())
    }

    /// An inode that answers every request with ESTALE.
    fn nowhere(&self, node: NodeId, file_type: u32) -> Found {
        let mount = Arc::clone(self.host.tree.root.mount());
        Found {
            identity: Identity::lost(mount.index, node.0),
            mount,
            mode: file_type & libc::S_IFMT,
            place: None,
            fd: None,
        }
    }

    /// Another name of a node, beside the one by which it was found, if it has it: a node is hidden only if all of
    /// its names are, and not redacted only if all are known.
    pub(super) fn name(&self, node: NodeId, name: KnownName) -> io::Result<()> {
        let tree = &self.host.tree;
        if let Ok(inode) = tree.nodes.get(node)
            && node != NodeId::ROOT
            && inode.names.latest().as_ref() != Some(&name)
            && tree.leads_to(&name, &inode).unwrap_or(false)
        {
            let noting = tree.noting(&inode);
            inode.names.record_uncertain(noting, name);
            if inode.names.count() > NAMES_OF_NODE_MAX {
                return Err(invalid(format!("node {:#x} has too many names", node.0)));
            }
        }
        Ok(())
    }

    /// What the policy here decides about an open file. After a death, what was granted stays granted;
    /// after a migration, it is decided again, and recorded if a rule audits it.
    fn decide_inode(
        &self,
        inode: &Arc<Inode>,
        note: &FileNote,
        (access, what): (Access, &'static str),
    ) -> Result<Option<FilePath>, Errno> {
        let Some(rules) = self
            .host
            .judge
            .active_policy()
            .filter(|_| self.is_migration)
        else {
            return Ok(None);
        };
        let decided = self.host.judge.decide_again(rules, inode, note.opener)?;
        let checked = decided.decision.check(access);
        checked.map_err(|refusal| refusal.errno)?;
        let judge = &self.host.judge;
        judge.record_open_again(&decided, note.opener, what)?;
        Ok(Some(decided.decision.file))
    }

    /// After a migration, what OPEN checks and does: anybody may have written the state.
    fn decide_file(
        &self,
        inode: &Arc<Inode>,
        note: &FileNote,
        flags: i32,
    ) -> Result<Option<FilePath>, Errno> {
        let files = &self.host.files;
        let access = access(flags);
        if self.is_migration && note.route.is_some_and(|route| route.writes) {
            // Whether the content of the file is this client's, only the server before knew.
            return Err(Errno::EACCES);
        }
        if self.is_migration && access == Access::Change {
            files.require_mapped(inode)?;
        }
        let wanted = self.decide_inode(inode, note, (access, access_name(flags)))?;
        if self.is_migration && access == Access::Change {
            files.drop_privileges_of_others(None, inode)?;
        }
        Ok(wanted)
    }

    fn inode(&self, node: NodeId) -> io::Result<Arc<Inode>> {
        let inode = self.host.tree.nodes.get(node);
        inode.map_err(|_| invalid(format!("node {:#x} is open and not known", node.0)))
    }

    /// A file that the client has open. Opens a lower file if the inode was found, unless the last close(2)
    /// had closed it; `given` is one that the process before has left.
    pub(super) fn file(&mut self, record: OpenRecord, given: Option<OwnedFd>) -> io::Result<()> {
        let host = self.host;
        let (note, flock) = (record.note, lock_kind(record.flock));
        let inode = self.inode(note.node)?;
        let appends = note.flags & libc::O_APPEND;
        let flags =
            FLAGS & (lower_flags(note.flags.cast_unsigned(), &host.config) as i32 | appends);
        let writable = flags & libc::O_ACCMODE != libc::O_RDONLY;
        if !(inode.is_regular() && (!writable || host.config.writable().is_ok())) {
            return Err(invalid(format!("node {:#x} cannot be open", note.node.0)));
        }
        let wanted = self.decide_file(&inode, &note, flags);
        let files = &host.files;
        let joined =
            wanted.and_then(|wanted| files.resume_use(&inode, flags, &note, wanted.as_ref()));
        let Some(guard) = self.unless_lost("open file", note.handle.0, joined)? else {
            return Ok(());
        };
        guard.hold(host.files.quotas.charge_resumed(note.opener.uid));
        let carries_lock = given.is_some();
        let writes = note.route.is_some_and(|route| route.writes);
        // As `Files::lower` opens it.
        let lower_flags = match guard.filter().is_some() && !writes {
            true => libc::O_RDONLY,
            false => flags,
        };
        // Under passthrough, the kernel has a lower file of its own.
        let is_open = record.is_open && guard.backing().is_none();
        let fd = if given.is_some() || !(is_open || flock.is_some()) {
            given
        } else {
            let opened = host.tree.open_inode(&inode, lower_flags);
            self.unless_lost("open file", note.handle.0, opened)?
        };
        let lower = fd.map(|fd| Arc::new(LowerFile::new(fd, inode.mount().no_wait)));
        if let Some(lower) = &lower {
            if let Ok(stat) = stat_open(&**lower) {
                inode.noted.record_mode(u32::from(stat.stx_mode));
            }
            inode.lower.set_opened(lower);
        }
        if let Some(filter) = guard.filter().filter(|_| writes)
            && let Ok(stat) = host.tree.stat(&inode)
        {
            filter.go_on_writing(note.handle, &stat);
        }
        let locked = match (&lower, flock) {
            (Some(lower), Some(kind)) if !carries_lock => {
                lock::flock(&**lower, kind).map_err(Errno::from)
            }
            (None, Some(_)) => Err(Errno::ENOLCK),
            _ => Ok(()),
        };
        let file = OpenFile::new(NewOpenFile {
            guard,
            lower,
            flags,
            appends: flags & libc::O_APPEND != 0,
            version: 0,
        });
        file.set_opener(note.opener);
        file.set_flock(flock.or(carries_lock.then_some(LockKind::Unlock)));
        if let Err(why) = locked {
            file.lose();
            self.lose("lock of open file", note.handle.0, why)?;
        }
        let file = host.files.files.insert_at(note.handle.0, OPENS_MAX, file);
        file.ok_or_else(|| invalid(format!("there can be no file {:#x}", note.handle.0)))?;
        host.tree.was_opened(&inode);
        if self.is_migration {
            host.files.note_restored_file(note, flock);
        }
        Ok(())
    }

    /// A directory that the client has open, and which one it was.
    pub(super) fn directory(&mut self, record: OpenRecord) -> io::Result<()> {
        let (host, note) = (self.host, record.note);
        let inode = self.inode(note.node)?;
        if !inode.is_directory() {
            return Err(invalid(format!("node {:#x} cannot be listed", note.node.0)));
        }
        if let Err(why) = self.decide_inode(&inode, &note, (Access::Read, "list")) {
            return self.lose("open directory", note.handle.0, why);
        }
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let opened = host.tree.open_inode(&inode, flags);
        let fd = self.unless_lost("open directory", note.handle.0, opened)?;
        inode.mount().idle_expiry.file_opened();
        let charge = host.files.quotas.charge_resumed(note.opener.uid);
        let directory = OpenDirectory::again(inode, fd, record.listing, charge);
        directory.set_opener(note.opener);
        let directories = &host.files.directories;
        let directory = directories
            .insert_at(note.handle.0, OPENS_MAX, directory)
            .ok_or_else(|| invalid(format!("there can be no directory {:#x}", note.handle.0)))?;
        host.files.listings.enter(&directory);
        if self.is_migration
            && let Some(tables) = &host.tree.tables
        {
            tables.directories.insert(note);
        }
        Ok(())
    }

    /// An owner of locks, which are taken again.
    pub(super) fn owner(&mut self, note: OwnerNote, ranges: &[RangeLock]) -> io::Result<()> {
        let host = self.host;
        let files = host.files.files_of_owner(&note);
        let Some(file) = files.first() else {
            // The open file is gone, so there is nothing that could still be reported as lost.
            return match ranges.is_empty() {
                true => Ok(()),
                false => self.lose("locks of open file", note.handle.0, Errno::EBADF),
            };
        };
        if file.node() != note.node {
            return Err(invalid(
                "an owner of locks is not of the file that it locked",
            ));
        }
        let taken = host
            .files
            .open_for_owner(file, note, self.charges_of_owner(file))
            .and_then(|owner| host.files.enter_owner(owner))
            .and_then(|owner| host.files.take_ranges(&owner, ranges));
        if let Err(why) = taken {
            files.iter().for_each(|file| file.lose());
            self.lose("locks of open file", note.handle.0, why)?;
        }
        Ok(())
    }

    /// For the user who opened the file: the ledger does not record who locked it.
    fn charges_of_owner(&self, file: &OpenFile) -> OwnerCharges {
        let files = &self.host.files;
        let shares = [&files.lock_quotas, &files.quotas];
        shares.map(|shares| shares.charge_resumed(file.opener().uid))
    }

    /// An owner with a stored open file, which has its locks.
    pub(super) fn kept_owner(&self, file: &OpenFile, note: OwnerNote, fd: OwnedFd, place: u32) {
        file.inode().noted.set(Noted::Locked);
        let charges = self.charges_of_owner(file);
        let owner = OwnerFile::new(fd, note, Some(place), charges);
        self.host.files.locks.put(owner);
    }

    pub(super) fn finish(self, highest: [u32; 3]) -> io::Result<()> {
        let host = self.host;
        let settled = host.tree.nodes.settle(highest[0])
            && host.files.files.settle(highest[1])
            && host.files.directories.settle(highest[2]);
        if !settled {
            return Err(invalid("the session has used up its numbers"));
        }
        host.files.settle_mount_locks();
        if self.lost > 0 {
            tracing::warn!(
                lost = self.lost,
                "a session was resumed without parts of it"
            );
        }
        Ok(())
    }
}

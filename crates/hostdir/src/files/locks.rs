//! Locks shared with other users of the source (`locks=shared`).
//!
//! `flock(2)`: a client's open file has one lower file, which carries the lock.
//!
//! POSIX and OFD locks: each owner has a lower open file for each inode, with OFD locks. They conflict with
//! those of other owners here and on the host, merge and split as the owner's own locks do, and end when
//! the file is closed: at the FLUSH of a POSIX owner, and at the RELEASE of the open file through which an
//! OFD owner locked last. The lower kernel sees no processes, so deadlocks of POSIX locks are detected
//! [here](crate::files::deadlock). What programs above may map shared is locked
//! [by the mount](crate::files::mount_lock) for all of them.

use super::Files;
use super::deadlock::{QUESTIONS_MAX, Wait, Waiting, conflicts_with};
use super::lock_owners::{MOUNT, OwnerCharges, OwnerFile};
use super::moved_ranges::{shifted, unshifted};
use super::open_file::OpenFile;
use crate::config::CacheMode;
use crate::ledger::{Key, OwnerNote};
use crate::quota::UserQuotas;
use crate::stat::{content_version, stat_open};
use crate::tree::{Inode, Noted};
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use thrufs::{Context, Errno, LockArgs, Result};
use thrufs_abi::{FileHandle, LockOwner, NodeId};
use thrufs_sys::lock::{self, LockKind, RangeLock};

/// How long an attempt at a lock of flock(2) waits for the RELEASE of who had it, in milliseconds.
const RELEASE_MS_MAX: u32 = 5;

/// How long a lock waits until the kernel above has been told what happened before.
pub(super) const TOLD_MAX: Duration = Duration::from_millis(100);

/// Longest time for which a guest keeps attributes that it relies on after its first lock of a file.
const KEPT_MAX: Duration = Duration::from_secs(1);

fn kind(args: &LockArgs) -> Result<LockKind> {
    match args.kind as i32 {
        libc::F_RDLCK => Ok(LockKind::Read),
        libc::F_WRLCK => Ok(LockKind::Write),
        libc::F_UNLCK => Ok(LockKind::Unlock),
        _ => Err(Errno::EINVAL),
    }
}

fn note(node: NodeId, args: &LockArgs) -> OwnerNote {
    OwnerNote {
        node,
        owner: args.owner,
        handle: args.handle,
        pid: args.pid,
    }
}

fn range(args: &LockArgs) -> Result<RangeLock> {
    if args.owner == MOUNT {
        return Err(Errno::EINVAL);
    }
    Ok(RangeLock {
        kind: kind(args)?,
        start: args.start,
        end: args.end,
        pid: 0,
    })
}

impl Files {
    /// Whether the close of an open needs no FLUSH. A POSIX lock falls with any close of its owner, of which FLUSH
    /// alone tells. Locks that need a file open for reading are rare: until the first lock of a file, its readers
    /// send none, and what they lock falls with their RELEASE.
    pub(super) fn skips_flush(&self, inode: &Inode, writable: bool) -> bool {
        let keeps_locks = || self.keeps_locks.load(Ordering::Relaxed);
        self.may_skip_flush.load(Ordering::Relaxed)
            && !(keeps_locks() && (writable || inode.noted.has(Noted::Locked)))
    }

    fn owner_file(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &LockArgs,
    ) -> Result<Arc<OwnerFile>> {
        if let Some((known, has_other_file)) = self.locks.get_by(node, args.owner, args.handle) {
            if let (true, Some(tables), Some(place)) =
                (has_other_file, &self.tree.tables, known.place)
            {
                tables.note_owner(place, known.note());
            }
            self.locks.check_room(&known)?;
            return Ok(known);
        }
        let file = self.file_of(node, args.handle)?;
        self.new_owner(context, &file, note(node, args))
    }

    pub(super) fn new_owner(
        &self,
        context: &Context<'_>,
        file: &OpenFile,
        note: OwnerNote,
    ) -> Result<Arc<OwnerFile>> {
        let charge =
            |quotas: &Arc<UserQuotas>| quotas.charge(context.uid()).map_err(|_| Errno::ENOLCK);
        let charges = [charge(&self.lock_quotas)?, charge(&self.quotas)?];
        let file = self.open_for_owner(file, note, charges)?;
        if note.owner != MOUNT {
            self.locks.check_room(&file)?;
        }
        self.enter_owner(file)
    }

    /// Inserts an owner, and stores its file outside this process.
    pub(crate) fn enter_owner(&self, file: OwnerFile) -> Result<Arc<OwnerFile>> {
        if let Ok(inode) = self.tree.nodes.get(file.note().node) {
            inode.noted.set(Noted::Locked);
        }
        let (file, is_new) = self.locks.insert(file, self.tree.tables.is_some())?;
        if let (true, Some(tables), Some(place)) = (is_new, &self.tree.tables, file.place) {
            self.tree.keep(Key::Owner(place), file.fd.as_fd());
            tables.note_owner(place, file.note());
        }
        Ok(file)
    }

    /// Drops the locks of a POSIX owner that closed a descriptor of the node.
    pub(crate) fn release_owner(&self, node: NodeId, owner: LockOwner) {
        if owner == MOUNT {
            return;
        }
        if let Some(file) = self.locks.remove(node, owner) {
            file.release(&self.tree);
            self.mount_locks.settle(node);
        }
    }

    /// Drops the locks made through an open file that is gone.
    pub(crate) fn release_owners_of(&self, handle: FileHandle) {
        for file in self.locks.remove_all_of(handle) {
            file.release(&self.tree);
            self.mount_locks.settle(file.note().node);
        }
    }

    /// The open files that depend on the locks of an owner: for the mount, all of its node.
    pub(crate) fn files_of_owner(&self, note: &OwnerNote) -> Vec<Arc<OpenFile>> {
        if note.owner != MOUNT {
            return self.files.get(note.handle.0).into_iter().collect();
        }
        let files = self.files.iter().map(|(_, file)| file);
        files.filter(|file| file.node() == note.node).collect()
    }

    pub(crate) fn open_for_owner(
        &self,
        file: &OpenFile,
        note: OwnerNote,
        charges: OwnerCharges,
    ) -> Result<OwnerFile> {
        // Both kinds of lock need an open file; one that cannot be written is locked with the access there
        // is. A redacted file is not opened for writing, which its readers rely on.
        let access = match file.guard().filter() {
            Some(_) => libc::O_RDONLY,
            None => libc::O_RDWR,
        };
        let fd = match self.open_again_raw(file, access) {
            Ok(fd) => fd,
            Err(Errno::EACCES | Errno::EROFS | Errno::EPERM | Errno::ETXTBSY) => {
                self.open_again_raw(file, libc::O_RDONLY)?
            }
            Err(error) => return Err(error),
        };
        Ok(OwnerFile::new(fd, note, None, charges))
    }

    pub(crate) fn getlk(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &LockArgs,
    ) -> Result<Option<LockArgs>> {
        self.have_locks();
        let wanted = range(args)?;
        if self.locks.has_many(node) {
            context.require_blocking()?;
        }
        let file = self.file_of(node, args.handle)?;
        let owner = match self.locks.get(node, args.owner) {
            Some(known) => known,
            None => Arc::new(self.open_for_owner(&file, note(node, args), [None, None])?),
        };
        // First those above, then those beneath, among which the mount's own is none.
        let mount = self.locks.get(node, MOUNT);
        let mount = mount.filter(|_| self.mount_locks.held(node).is_some());
        let (found, is_shifted) = match mount {
            None => (lock::ofd_get(&owner.fd, &wanted)?, false),
            Some(mount) => match lock::ofd_get(&owner.fd, &shifted(&wanted)?)? {
                None => (lock::ofd_get(&mount.fd, &wanted)?, false),
                found => (found, true),
            },
        };
        let Some(found) = found else {
            return Ok(None);
        };
        let kind = match found.kind {
            LockKind::Read => libc::F_RDLCK,
            LockKind::Write => libc::F_WRLCK,
            LockKind::Unlock => return Ok(None),
        };
        // A lock of a process on the host has its id; one of ours is an OFD lock with -1.
        let pid = match u32::try_from(found.pid) {
            Ok(pid) => pid,
            Err(_) => self.locks.holder_of(node, args.owner, &found).unwrap_or(0),
        };
        let shown = if is_shifted { unshifted(&found) } else { found };
        Ok(Some(LockArgs {
            start: shown.start,
            end: shown.end,
            kind: kind as u32,
            pid,
            ..*args
        }))
    }

    pub(crate) fn setlk(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &LockArgs,
        wait: bool,
    ) -> Result<()> {
        self.have_locks();
        if args.flock {
            return self.flock(context, node, args, wait);
        }
        let range = range(args)?;
        let is_unlock = range.kind == LockKind::Unlock;
        // An unlock by F_SETLKW would take a place of those that wait for locks.
        if !(wait && is_unlock) && self.locks.has_many(node) {
            context.require_blocking()?;
        }
        if is_unlock {
            return self.unlock(node, args.owner, &range);
        }
        let open = self.file_of(node, args.handle)?;
        let is_first = self.is_first_lock(context, open.inode())?;
        let mut joined = self.join_locks(context, &open, args, wait)?;
        let range = match &joined {
            Some(joined) => joined.beneath(&range)?,
            None => range,
        };
        let file = self.owner_file(context, node, args)?;
        lock_or_wait(
            context,
            wait,
            || Ok(lock::ofd_set(&file.fd, &range)?),
            || {
                if let Some(joined) = &mut joined {
                    joined.begin_wait();
                }
                let _waiting = self.wait_for(node, args.owner, range)?;
                lock::ofd_set_wait(&file.fd, &range)?;
                joined.as_ref().map_or(Ok(()), |it| it.end_wait(&file))
            },
        )?;
        file.has_changed();
        match joined {
            // All was refreshed when the mount locked the file.
            Some(joined) if joined.is_moved() => Ok(()),
            _ => self.refresh_locked(context, &open, file.fd.as_fd(), is_first),
        }
    }

    fn unlock(&self, node: NodeId, owner: LockOwner, range: &RangeLock) -> Result<()> {
        let Some(file) = self.locks.get(node, owner) else {
            return Ok(());
        };
        self.mount_locks.unlock(&file, node, range)?;
        self.mount_locks.settle(node);
        Ok(())
    }

    /// Whoever takes a lock relies on what others did under it before, also to other names: SQLite's journal says by its
    /// own whether it is in force. So the kernel above is told of all that first, or asks for all names. Then it asks for
    /// the attributes, and drops data that have changed with them: an older answer may still be on its way. Where
    /// a notification has not arrived in time, the data are dropped here: in the kernel, a thread may have noted the new
    /// time and not yet dropped them, and others see no change then. A guest, which takes no
    /// notifications, keeps no attributes of a file that was locked once, and with the first lock those end that it has.
    fn refresh_locked(
        &self,
        context: &Context<'_>,
        file: &OpenFile,
        fd: BorrowedFd<'_>,
        is_first: bool,
    ) -> Result<()> {
        if self.config.cache != CacheMode::Auto {
            return Ok(());
        }
        let inode = file.inode();
        if self.tree.connected_notifier().is_some() {
            let mut untold = self.follow.untold(Duration::ZERO);
            if untold.is_some() {
                context.require_blocking()?;
                untold = self.follow.untold(TOLD_MAX);
            }
            if let Some(untold) = &untold {
                self.ask_anew(untold);
            }
            self.tree.attributes_changed(inode);
            let may_be_late = untold.is_some_and(|untold| untold.all_nodes);
            if self.may_map_shared(file) && (may_be_late || self.follow.is_telling(inode)) {
                context.require_blocking()?;
                // Without it, the kernel goes by the time.
                let _ = self.mount_locks.drop_pages(inode.node(), context.uid());
            }
        } else if is_first && !inode.reported.is_of(content_version(&stat_open(fd)?)) {
            thread::sleep(self.config.attr_timeout().min(KEPT_MAX));
        }
        Ok(())
    }

    /// Whether a lock is the first of a file; it may sleep then.
    fn is_first_lock(&self, context: &Context<'_>, inode: &Inode) -> Result<bool> {
        let is_first = !inode.noted.has(Noted::Locked);
        if is_first && self.tree.connected_notifier().is_none() {
            context.require_blocking()?;
        }
        Ok(is_first)
    }

    /// Registers an owner as waiting, unless that closes a cycle.
    fn wait_for(&self, node: NodeId, owner: LockOwner, range: RangeLock) -> Result<Waiting<'_>> {
        let questions = Cell::new(QUESTIONS_MAX);
        let holds = |node, owner, range: &RangeLock| {
            let file = self.locks.get(node, owner);
            file.is_some_and(|file| conflicts_with(&file.fd, range, &questions))
        };
        self.lock_waits.enter(Wait { node, owner, range }, holds)
    }

    fn flock(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &LockArgs,
        wait: bool,
    ) -> Result<()> {
        let file = self.file_of(node, args.handle)?;
        let kind = kind(args)?;
        let is_first = !file.was_locked();
        if is_first && file.is_passthrough() {
            let charge = self.quotas.charge(context.uid());
            file.guard().hold(charge.map_err(|_| Errno::ENOLCK)?);
        }
        let is_first_of_file = self.is_first_lock(context, file.inode())?;
        let lower = self.lower_to_lock(&file)?;
        if is_first {
            self.tree.keep(Key::File(args.handle), lower.as_fd());
        }
        let fd = lower.as_fd();
        let attempt = || Ok(lock::flock(fd, kind)?);
        let mut locked = lock_or_wait(context, wait, attempt, || Ok(lock::flock_wait(fd, kind)?));
        // The kernel tells of a last close by RELEASE, for which close(2) does not wait.
        for _ in 0..RELEASE_MS_MAX {
            if locked != Err(Errno::EAGAIN) {
                break;
            }
            context.require_blocking()?;
            thread::sleep(Duration::from_millis(1));
            locked = attempt();
        }
        locked?;
        if self.tree.connected_notifier().is_none() {
            file.inode().noted.set(Noted::Locked);
        }
        self.refresh_locked(context, &file, fd, is_first_of_file)?;
        file.set_flock(Some(kind));
        self.note_flock(args.handle, kind);
        Ok(())
    }
}

/// Tries first; then waits, if wanted, on a thread that may block.
fn lock_or_wait(
    context: &Context<'_>,
    wait: bool,
    attempt: impl Fn() -> Result<()>,
    sleep: impl FnOnce() -> Result<()>,
) -> Result<()> {
    match attempt() {
        Err(Errno::EAGAIN | Errno::EACCES) if wait => {
            context.require_blocking()?;
            context.interruptible(|_| sleep())
        }
        Err(Errno::EACCES) => Err(Errno::EAGAIN),
        result => result,
    }
}

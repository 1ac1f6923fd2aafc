//! Locks shared with other users of the source (`locks=shared`).
//!
//! `flock(2)`: a client's open file has one lower file, which carries the lock.
//!
//! POSIX and OFD locks: each owner has a lower open file for each inode, with OFD locks. They conflict with
//! those of other owners here and on the host, merge and split as the owner's own locks do, and end when
//! the file is closed: at the FLUSH of a POSIX owner, and at the RELEASE of the open file through which an
//! OFD owner locked. The lower kernel sees no processes, so deadlocks of POSIX locks are detected
//! [here](crate::files::deadlock).

use super::deadlock::{Wait, Waiting, conflicts_with};
use crate::host::Host;
use crate::ledger::Key;
use crate::ledger::OwnerNote;
use crate::quota::{QuotaCharge, UserQuotas};
use crate::succession::give_up_ranges;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use thrufs::{Context, Errno, LockArgs, Result};
use thrufs_abi::{FileHandle, LockOwner, NodeId};
use thrufs_sys::lock::{self, LockKind, RangeLock};

/// Most owners with shared locks: each costs a descriptor.
const OWNERS_MAX: usize = 8192;
/// Of one user, and of all users but root and the server's.
pub(crate) const USER_OWNERS_MAX: usize = OWNERS_MAX / 2;
pub(crate) const USERS_OWNERS_MAX: usize = OWNERS_MAX / 4 * 3;

pub(crate) struct OwnerFile {
    pub(crate) fd: OwnedFd,
    /// The open file of its first lock.
    pub(crate) handle: FileHandle,
    pub(crate) pid: u32,
    /// Its index in the ledger, if it has one.
    pub(crate) place: Option<u32>,
    /// For the user who locks.
    pub(crate) _charges: OwnerCharges,
}

/// A place among the owners, and a descriptor.
pub(crate) type OwnerCharges = [Option<QuotaCharge>; 2];

type OwnerFiles = HashMap<(NodeId, LockOwner), Arc<OwnerFile>>;

#[derive(Default)]
pub(crate) struct LockOwners {
    files: Mutex<OwnerFiles>,
}

/// A free index in the ledger.
fn free_place(files: &OwnerFiles) -> u32 {
    let taken: HashSet<u32> = files.values().filter_map(|file| file.place).collect();
    (0..).find(|place| !taken.contains(place)).unwrap_or(0)
}

impl LockOwners {
    pub(crate) fn len(&self) -> usize {
        self.files.lock().len()
    }

    fn get(&self, node: NodeId, owner: LockOwner) -> Option<Arc<OwnerFile>> {
        self.files.lock().get(&(node, owner)).cloned()
    }

    /// Inserts an owner, with an index in the ledger if `is_noted`. The second value says whether it is
    /// new.
    fn insert(
        &self,
        (node, owner): (NodeId, LockOwner),
        mut file: OwnerFile,
        is_noted: bool,
    ) -> Result<(Arc<OwnerFile>, bool)> {
        let mut files = self.files.lock();
        if let Some(known) = files.get(&(node, owner)) {
            return Ok((Arc::clone(known), false));
        }
        if files.len() >= OWNERS_MAX {
            return Err(Errno::ENOLCK);
        }
        if is_noted {
            file.place = Some(free_place(&files));
        }
        let file = Arc::new(file);
        files.insert((node, owner), Arc::clone(&file));
        Ok((file, true))
    }

    /// Inserts an owner of another process.
    pub(crate) fn put(&self, node: NodeId, owner: LockOwner, file: OwnerFile) {
        let before = self.files.lock().insert((node, owner), Arc::new(file));
        drop(before);
    }

    pub(crate) fn all(&self) -> Vec<((NodeId, LockOwner), Arc<OwnerFile>)> {
        let files = self.files.lock();
        files
            .iter()
            .map(|(owner, file)| (*owner, Arc::clone(file)))
            .collect()
    }

    fn remove(&self, node: NodeId, owner: LockOwner) -> Option<Arc<OwnerFile>> {
        self.files.lock().remove(&(node, owner))
    }

    fn remove_all_of(&self, handle: FileHandle) -> Vec<Arc<OwnerFile>> {
        let mut files = self.files.lock();
        if files.is_empty() {
            return Vec::new();
        }
        let removed = files.extract_if(|_, file| file.handle == handle);
        removed.map(|(_, file)| file).collect()
    }

    /// The process id of the other owner that holds this lock on a node; `None` for a lock on the host.
    fn holder_of(&self, node: NodeId, owner: LockOwner, lock: &RangeLock) -> Option<u32> {
        let others: Vec<_> = {
            let files = self.files.lock();
            let others = files.iter().filter(|((n, o), _)| *n == node && *o != owner);
            others.map(|(_, file)| Arc::clone(file)).collect()
        };
        let own = RangeLock {
            kind: LockKind::Unlock,
            ..*lock
        };
        let holds = |file: &OwnerFile| match lock::ofd_get(&file.fd, &own) {
            Ok(held) => held.is_some_and(|held| {
                (held.kind, held.start, held.end) == (lock.kind, lock.start, lock.end)
            }),
            // An older kernel: with a single other owner, the lock is its.
            Err(_) => matches!(others[..], [_]),
        };
        others.iter().find(|file| holds(file)).map(|file| file.pid)
    }
}

fn kind(args: &LockArgs) -> Result<LockKind> {
    match args.kind as i32 {
        libc::F_RDLCK => Ok(LockKind::Read),
        libc::F_WRLCK => Ok(LockKind::Write),
        libc::F_UNLCK => Ok(LockKind::Unlock),
        _ => Err(Errno::EINVAL),
    }
}

fn range(args: &LockArgs) -> Result<RangeLock> {
    Ok(RangeLock {
        kind: kind(args)?,
        start: args.start,
        end: args.end,
        pid: 0,
    })
}

impl Host {
    fn owner_file(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &LockArgs,
    ) -> Result<Arc<OwnerFile>> {
        if let Some(known) = self.locks.get(node, args.owner) {
            return Ok(known);
        }
        self.file_of(node, args.handle)?;
        let charge =
            |quotas: &Arc<UserQuotas>| quotas.charge(context.uid()).map_err(|_| Errno::ENOLCK);
        let charges = [charge(&self.lock_quotas)?, charge(&self.quotas)?];
        let file = self.open_for_owner(args.handle, args.pid, charges)?;
        self.enter_owner(node, args.owner, file)
    }

    /// Inserts an owner, and stores its file outside this process.
    pub(crate) fn enter_owner(
        &self,
        node: NodeId,
        owner: LockOwner,
        file: OwnerFile,
    ) -> Result<Arc<OwnerFile>> {
        let is_noted = self.notes.is_some();
        let (file, is_new) = self.locks.insert((node, owner), file, is_noted)?;
        if let (true, Some(notes), Some(place)) = (is_new, &self.notes, file.place) {
            self.keep(Key::Owner(place), file.fd.as_fd());
            let note = OwnerNote {
                node,
                owner,
                handle: file.handle,
                pid: file.pid,
            };
            notes.note_owner(place, note);
        }
        Ok(file)
    }

    /// Drops the locks of a POSIX owner that closed a descriptor of the node.
    pub(crate) fn release_owner(&self, node: NodeId, owner: LockOwner) {
        if let Some(file) = self.locks.remove(node, owner) {
            self.owner_released(&file);
        }
    }

    /// Drops the locks made through an open file that is gone.
    pub(crate) fn release_owners_of(&self, handle: FileHandle) {
        for file in self.locks.remove_all_of(handle) {
            self.owner_released(&file);
        }
    }

    fn owner_released(&self, file: &OwnerFile) {
        let (Some(notes), Some(place)) = (&self.notes, file.place) else {
            return;
        };
        // The strongbox closes its duplicate later.
        give_up_ranges(&file.fd);
        notes.forget_owner(place);
        self.discard(Key::Owner(place));
    }

    pub(crate) fn open_for_owner(
        &self,
        handle: FileHandle,
        pid: u32,
        charges: OwnerCharges,
    ) -> Result<OwnerFile> {
        let file = self.file(handle)?;
        // Both kinds of lock need an open file; one that cannot be written is locked with the access there
        // is. A redacted file is not opened for writing, which its readers rely on.
        let access = match file.guard().filter() {
            Some(_) => libc::O_RDONLY,
            None => libc::O_RDWR,
        };
        let fd = match self.open_again_raw(&file, access) {
            Ok(fd) => fd,
            Err(Errno::EACCES | Errno::EROFS | Errno::EPERM | Errno::ETXTBSY) => {
                self.open_again_raw(&file, libc::O_RDONLY)?
            }
            Err(error) => return Err(error),
        };
        Ok(OwnerFile {
            fd,
            handle,
            pid,
            place: None,
            _charges: charges,
        })
    }

    pub(crate) fn getlk(&self, node: NodeId, args: &LockArgs) -> Result<Option<LockArgs>> {
        self.have_locks();
        let wanted = range(args)?;
        self.file_of(node, args.handle)?;
        let file = match self.locks.get(node, args.owner) {
            Some(known) => known,
            None => Arc::new(self.open_for_owner(args.handle, args.pid, [None, None])?),
        };
        let Some(found) = lock::ofd_get(&file.fd, &wanted)? else {
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
        Ok(Some(LockArgs {
            start: found.start,
            end: found.end,
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
        if range.kind == LockKind::Unlock {
            return match self.locks.get(node, args.owner) {
                Some(file) => Ok(lock::ofd_set(&file.fd, &range)?),
                None => Ok(()),
            };
        }
        let file = self.owner_file(context, node, args)?;
        lock_or_wait(
            context,
            wait,
            || Ok(lock::ofd_set(&file.fd, &range)?),
            || {
                let _waiting = self.wait_for(node, args.owner, range)?;
                Ok(lock::ofd_set_wait(&file.fd, &range)?)
            },
        )
    }

    /// Registers an owner as waiting, unless that closes a cycle.
    fn wait_for(&self, node: NodeId, owner: LockOwner, range: RangeLock) -> Result<Waiting<'_>> {
        let holds = |node, owner, range: &RangeLock| {
            let file = self.locks.get(node, owner);
            file.is_some_and(|file| conflicts_with(&file.fd, range))
        };
        self.lock_waits.enter(Wait { node, owner, range }, holds)
    }
}

impl Host {
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
        let lower = self.lower_to_lock(&file)?;
        if is_first {
            self.keep_to_lock(args.handle, &lower);
        }
        let fd = lower.as_fd();
        lock_or_wait(
            context,
            wait,
            || Ok(lock::flock(fd, kind)?),
            || Ok(lock::flock_wait(fd, kind)?),
        )?;
        self.flock_taken(args.handle, &file, kind);
        Ok(())
    }
}

/// Tries first; then waits, if wanted, on a thread that may block.
fn lock_or_wait(
    context: &Context<'_>,
    wait: bool,
    attempt: impl Fn() -> Result<()>,
    sleep: impl Fn() -> Result<()>,
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

//! The owners of shared POSIX and OFD locks, each with a lower open file for each inode.
//!
//! **Bounds.** What an owner holds is asked of the lower kernel, range by range, and each answer takes as long as
//! the file has locks. So what all owners of a file hold is bounded ([`RANGES_MAX`]), and a request about a file of
//! which they hold many is carried out where it may sleep. A change of locks is taken for the most that it may add;
//! the kernel is asked when that has come to more than twice what it said before, and at the bound.

use super::moved_ranges::{SHIFT, shifted};
use crate::ledger::{Key, OwnerNote};
use crate::quota::QuotaCharge;
use crate::tree::Tree;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use thrufs::{Errno, Result};
use thrufs_abi::{FileHandle, LockOwner, NodeId};
use thrufs_sys::lock::{self, END_OF_FILE, LockKind, RangeLock};

/// The owner of the lock that the [mount](crate::files::mount_lock) takes for all owners above. A client that
/// names itself so is refused; those of a kernel are random numbers. Its note has no handle, since it outlives
/// that of the first lock.
pub(crate) const MOUNT: LockOwner = LockOwner(u64::MAX);

/// Most owners with shared locks: each costs a descriptor.
const OWNERS_MAX: usize = 8192;

/// Of one user, and of all users but root and the server's.
pub(crate) const USER_OWNERS_MAX: usize = OWNERS_MAX / 2;

pub(crate) const USERS_OWNERS_MAX: usize = OWNERS_MAX / 4 * 3;

/// Most ranges that all owners of a file hold; one that holds none counts as one.
const RANGES_MAX: usize = 2048;

/// Of one user, and of all users but root and the server's.
const USER_RANGES_MAX: usize = RANGES_MAX / 2;
const USERS_RANGES_MAX: usize = RANGES_MAX / 4 * 3;

/// From how many on they are many.
const MANY: usize = 64;

/// How many ranges a change may add: it splits one in three.
const SPLIT: usize = 2;

/// How many an owner may have added before it is asked what it holds.
const UNCOUNTED: usize = 16;

pub(crate) struct OwnerFile {
    pub(crate) fd: OwnedFd,
    /// With the open file of its first lock.
    noted: OwnerNote,
    /// The open file of its last lock.
    handle: AtomicU64,
    /// Its index in the ledger, if it has one.
    pub(crate) place: Option<u32>,
    /// For the user who locks.
    charges: OwnerCharges,
    /// How many ranges it holds at most, but for changes under way.
    ranges: AtomicUsize,
    /// How many it held when the kernel was last asked.
    counted: AtomicUsize,
}

impl OwnerFile {
    pub(crate) fn new(
        fd: OwnedFd,
        noted: OwnerNote,
        place: Option<u32>,
        charges: OwnerCharges,
    ) -> OwnerFile {
        OwnerFile {
            fd,
            handle: AtomicU64::new(noted.handle.0),
            noted,
            place,
            charges,
            ranges: AtomicUsize::new(0),
            counted: AtomicUsize::new(0),
        }
    }

    fn key(&self) -> (NodeId, LockOwner) {
        (self.noted.node, self.noted.owner)
    }

    /// With the open file of its last lock.
    pub(crate) fn note(&self) -> OwnerNote {
        OwnerNote {
            handle: FileHandle(self.handle.load(Ordering::Relaxed)),
            ..self.noted
        }
    }

    /// To be called after a change of its locks.
    pub(super) fn has_changed(&self) {
        let ranges = self.ranges.fetch_add(SPLIT, Ordering::Relaxed) + SPLIT;
        if ranges > 2 * self.counted.load(Ordering::Relaxed) + UNCOUNTED {
            self.count();
        }
    }

    /// Asks how many ranges it holds. Older kernels do not say.
    pub(super) fn count(&self) {
        let held = own_locks(&self.fd, 0, END_OF_FILE);
        let held = held.map_while(Result::ok).count();
        self.ranges.store(held, Ordering::Relaxed);
        self.counted.store(held, Ordering::Relaxed);
    }

    fn is_counted(&self) -> bool {
        self.ranges.load(Ordering::Relaxed) == self.counted.load(Ordering::Relaxed)
    }

    /// The user who locks; `None` for root and the server's user.
    fn user(&self) -> Option<u32> {
        self.charges[0].as_ref().map(QuotaCharge::uid)
    }

    /// Whether an unlock would split a range of it.
    fn is_split_by(&self, unlocked: &RangeLock) -> bool {
        let first = own_locks(&self.fd, unlocked.start, unlocked.end).next();
        let is_split = |held: RangeLock| held.start < unlocked.start && held.end > unlocked.end;
        first.is_some_and(|held| held.is_ok_and(is_split))
    }

    /// Gives up its locks, which a stored duplicate or another request could hold on to.
    pub(super) fn release(&self, tree: &Tree) {
        give_up_ranges(&self.fd);
        if let (Some(tables), Some(place)) = (&tree.tables, self.place) {
            // The fd store closes its duplicate later.
            tables.forget_owner(place);
            tree.discard(Key::Owner(place));
        }
    }

    /// The kind of its first lock in a range; `None` on older kernels, which do not say.
    pub(super) fn first_lock(&self, start: u64, end: u64) -> Option<LockKind> {
        let first = own_locks(&self.fd, start, end).next()?;
        first.ok().map(|first| first.kind)
    }

    /// Moves its locks behind those of the mount, all for reading. Also those that were moved in part.
    pub(super) fn move_up(&self) -> Result<()> {
        let locks: Vec<RangeLock> = own_locks(&self.fd, 0, END_OF_FILE).collect::<Result<_>>()?;
        let unlock = |start, end| {
            let kind = LockKind::Unlock;
            let range = RangeLock {
                kind,
                start,
                end,
                pid: 0,
            };
            lock::ofd_set(&self.fd, &range)
        };
        let exact = || locks.iter().filter(|range| range.start < SHIFT);
        if exact().any(|range| range.end >= SHIFT) {
            unlock(SHIFT, END_OF_FILE)?;
        }
        for range in exact() {
            lock::ofd_set(&self.fd, &shifted(range)?)?;
        }
        Ok(unlock(0, SHIFT - 1)?)
    }
}

/// What the owners of a node hold as they asked for it, before the mount has locked the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Exact {
    Nothing,
    ForReading,
    /// Another owner than the one that asks, for writing.
    ForWriting,
    /// The one that asks, for writing, or nobody knows (older kernels).
    Unmovable,
}

/// A place among the owners, and a descriptor.
pub(crate) type OwnerCharges = [Option<QuotaCharge>; 2];

/// The locks of an open file in a range, its own ones; needs Linux 6.5 or so.
pub(super) fn own_locks(
    fd: impl AsFd,
    start: u64,
    end: u64,
) -> impl Iterator<Item = Result<RangeLock>> {
    let mut next = Some(start);
    std::iter::from_fn(move || {
        let own = RangeLock {
            kind: LockKind::Unlock,
            start: next?,
            end,
            pid: 0,
        };
        let found = lock::ofd_get(&fd, &own).transpose()?;
        let held = found.ok().filter(|held| held.end < end);
        next = held.map(|held| held.end + 1);
        Some(found.map_err(Errno::from))
    })
}

pub(super) fn give_up_ranges(fd: impl AsFd) {
    let everything = RangeLock {
        kind: LockKind::Unlock,
        start: 0,
        end: END_OF_FILE,
        pid: 0,
    };
    if let Err(error) = lock::ofd_set(fd, &everything) {
        tracing::debug!(%error, "cannot release locks");
    }
}

type OwnerFiles = BTreeMap<(NodeId, LockOwner), Arc<OwnerFile>>;

#[derive(Default)]
pub(crate) struct LockOwners {
    files: Mutex<OwnerFiles>,
}

/// A free index in the ledger.
fn free_place(files: &OwnerFiles) -> u32 {
    let taken: HashSet<u32> = files.values().filter_map(|file| file.place).collect();
    (0..).find(|place| !taken.contains(place)).unwrap_or(0)
}

/// The owners of a node beside the mount, whose number is the highest.
fn of_node(files: &OwnerFiles, node: NodeId) -> impl Iterator<Item = &Arc<OwnerFile>> {
    let owners = files.range((node, LockOwner(0))..(node, MOUNT));
    owners.map(|(_, file)| file)
}

fn has_room(owners: &[Arc<OwnerFile>], user: Option<u32>) -> bool {
    let sum = |is_of: &dyn Fn(Option<u32>) -> bool| {
        let owners = owners.iter().filter(|owner| is_of(owner.user()));
        let ranges = owners.map(|owner| owner.ranges.load(Ordering::Relaxed).max(1));
        ranges.sum::<usize>() + SPLIT
    };
    let is_within = match user {
        None => true,
        user => {
            sum(&|other| other == user) <= USER_RANGES_MAX
                && sum(&|other| other.is_some()) <= USERS_RANGES_MAX
        }
    };
    is_within && sum(&|_| true) <= RANGES_MAX
}

impl LockOwners {
    /// How many there are beside the mount, and how many files the mount has.
    pub(crate) fn count(&self) -> (usize, usize) {
        let files = self.files.lock();
        let of_mount = files.keys().filter(|(_, owner)| *owner == MOUNT).count();
        (files.len() - of_mount, of_mount)
    }

    /// The owners of locks on a node, beside the mount.
    fn others(&self, node: NodeId, owner: LockOwner) -> Vec<Arc<OwnerFile>> {
        let files = self.files.lock();
        let others = of_node(&files, node).filter(|file| file.noted.owner != owner);
        others.map(Arc::clone).collect()
    }

    pub(super) fn has_any(&self, node: NodeId) -> bool {
        of_node(&self.files.lock(), node).next().is_some()
    }

    /// Whether questions about a node take long.
    pub(super) fn has_many(&self, node: NodeId) -> bool {
        let files = self.files.lock();
        let mut counted = 0;
        of_node(&files, node).any(|file| {
            counted += 1 + file.counted.load(Ordering::Relaxed);
            counted > MANY
        })
    }

    /// Whether the owners of its node hold few enough ranges for one to change its own. Fails with `ENOLCK`.
    pub(super) fn check_room(&self, file: &OwnerFile) -> Result<()> {
        let owners = self.others(file.noted.node, MOUNT);
        if has_room(&owners, file.user()) {
            return Ok(());
        }
        let uncounted = owners.iter().filter(|owner| !owner.is_counted());
        uncounted.for_each(|owner| owner.count());
        match has_room(&owners, file.user()) {
            true => Ok(()),
            false => Err(Errno::ENOLCK),
        }
    }

    /// As [`check_room`](Self::check_room) for an unlock, which fails only where it would split a range.
    pub(super) fn check_room_to_unlock(&self, file: &OwnerFile, range: &RangeLock) -> Result<()> {
        self.check_room(file)
            .or_else(|full| match file.is_split_by(range) {
                true => Err(full),
                false => Ok(()),
            })
    }

    pub(super) fn hold_exactly(&self, node: NodeId, asking: LockOwner) -> Exact {
        let of = |owner: &Arc<OwnerFile>, held: Result<RangeLock>| match held.map(|held| held.kind)
        {
            Ok(LockKind::Read | LockKind::Unlock) => Exact::ForReading,
            Ok(LockKind::Write) if owner.noted.owner != asking => Exact::ForWriting,
            _ => Exact::Unmovable,
        };
        let owners = self.others(node, MOUNT).into_iter();
        let held = owners.flat_map(|owner| {
            let held = own_locks(&owner.fd, 0, END_OF_FILE);
            held.map(|held| of(&owner, held)).collect::<Vec<_>>()
        });
        held.max().unwrap_or(Exact::Nothing)
    }

    /// Whether an owner of a node beside the mount holds something from here on. On older kernels it may.
    pub(super) fn any_holds(&self, node: NodeId, start: u64) -> bool {
        let mut owners = self.others(node, MOUNT).into_iter();
        owners.any(|owner| own_locks(&owner.fd, start, END_OF_FILE).next().is_some())
    }

    /// Moves the locks of all owners of a node behind those of the mount.
    pub(super) fn move_up(&self, node: NodeId) -> Result<()> {
        let owners = self.others(node, MOUNT);
        owners.iter().try_for_each(|owner| owner.move_up())
    }

    pub(super) fn get(&self, node: NodeId, owner: LockOwner) -> Option<Arc<OwnerFile>> {
        self.files.lock().get(&(node, owner)).cloned()
    }

    /// An owner that locks by this open file from now on; the second value says whether that is another than before.
    /// The kernel above gives the number of an owner that is an open file to the next one at the same address, and
    /// sends the RELEASE of the first when it likes: that must not drop the locks of the second.
    pub(super) fn get_by(
        &self,
        node: NodeId,
        owner: LockOwner,
        handle: FileHandle,
    ) -> Option<(Arc<OwnerFile>, bool)> {
        let files = self.files.lock();
        let file = files.get(&(node, owner))?;
        let before = file.handle.swap(handle.0, Ordering::Relaxed);
        Some((Arc::clone(file), before != handle.0))
    }

    /// Inserts an owner, with an index in the ledger if `is_noted`. The second value says whether it is
    /// new.
    pub(super) fn insert(
        &self,
        mut file: OwnerFile,
        is_noted: bool,
    ) -> Result<(Arc<OwnerFile>, bool)> {
        let mut files = self.files.lock();
        if let Some(known) = files.get(&file.key()) {
            return Ok((Arc::clone(known), false));
        }
        if files.len() >= OWNERS_MAX {
            return Err(Errno::ENOLCK);
        }
        if is_noted {
            file.place = Some(free_place(&files));
        }
        let file = Arc::new(file);
        files.insert(file.key(), Arc::clone(&file));
        Ok((file, true))
    }

    /// Inserts an owner of another process.
    pub(crate) fn put(&self, file: OwnerFile) {
        let before = self.files.lock().insert(file.key(), Arc::new(file));
        drop(before);
    }

    pub(crate) fn all(&self) -> Vec<Arc<OwnerFile>> {
        self.files.lock().values().map(Arc::clone).collect()
    }

    pub(super) fn remove(&self, node: NodeId, owner: LockOwner) -> Option<Arc<OwnerFile>> {
        self.files.lock().remove(&(node, owner))
    }

    pub(super) fn remove_all_of(&self, handle: FileHandle) -> Vec<Arc<OwnerFile>> {
        let mut files = self.files.lock();
        if files.is_empty() {
            return Vec::new();
        }
        let removed = files.extract_if(.., |_, file| file.note().handle == handle);
        removed.map(|(_, file)| file).collect()
    }

    /// The process id of the other owner that holds this lock on a node; `None` for a lock on the host.
    pub(super) fn holder_of(
        &self,
        node: NodeId,
        owner: LockOwner,
        lock: &RangeLock,
    ) -> Option<u32> {
        let others = self.others(node, owner);
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
        others
            .iter()
            .find(|file| holds(file))
            .map(|file| file.noted.pid)
    }
}

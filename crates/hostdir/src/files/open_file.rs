//! An open file, from OPEN to RELEASE.

use super::guard::UseGuard;
use crate::ledger::OpenerIds;
use crate::tree::{Descriptor, Inode};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use thrufs::{Errno, LowerFile, Result};
use thrufs_abi::NodeId;
use thrufs_policy::DataPath;
use thrufs_sys::lock::LockKind;

/// A file that a client has open.
///
/// Under passthrough it has no lower file of ours: the few requests that still come (fsync, fallocate, ...)
/// open one for themselves. Any other has one. The last close(2) of a writer closes it before it returns; a
/// write through a duplicated descriptor opens it again.
pub(crate) struct OpenFile {
    pub(super) lower: Mutex<Lower>,
    pub(super) flags: i32,
    pub(crate) writable: bool,
    pub(super) written: AtomicBool,
    /// Its lower file carries, or carried, a `flock(2)`, and is kept for that.
    pub(super) locked: AtomicU8,
    /// It has no cache, while other opens of the file may have one.
    pub(super) is_uncached: AtomicBool,
    /// It could not be restored as the client has it: requests fail with EIO.
    pub(super) lost: AtomicBool,
    /// The lower file appends, whatever the offset (`chattr +a`).
    pub(super) appends: bool,
    /// See [`Found::version`](crate::files::versions::Found::version).
    pub(super) version: u64,
    /// How many errors its fsync(2) has reported, of all of the inode since it was opened.
    sync_errors: AtomicU32,
    /// User and group that opened it, as one word of [`OpenerIds`]; under a policy.
    pub(super) opener: AtomicU64,
    // Last: when the use of the inode ends, its lower file is closed already.
    pub(super) guard: UseGuard,
}

/// Values of [`OpenFile::locked`] beside those of [`lock_number`]: never tried; unlocked.
const NEVER_LOCKED: u8 = 0;

const UNLOCKED: u8 = 3;

/// A kind of lock in the ledger, and in the state of a session; 0 for none.
pub(crate) fn lock_number(kind: LockKind) -> u8 {
    match kind {
        LockKind::Unlock => 0,
        LockKind::Read => 1,
        LockKind::Write => 2,
    }
}

/// The inverse of [`lock_number`].
pub(crate) fn lock_kind(number: u8) -> Option<LockKind> {
    match number {
        1 => Some(LockKind::Read),
        2 => Some(LockKind::Write),
        _ => None,
    }
}

#[derive(Default)]
pub(super) struct Lower {
    pub(super) file: Option<Arc<LowerFile>>,
    /// Keeps the inode, which may have lost its names, while there is no file.
    pub(super) pin: Option<Descriptor>,
}

pub(crate) struct NewOpenFile {
    pub(crate) guard: UseGuard,
    pub(crate) lower: Option<Arc<LowerFile>>,
    pub(crate) flags: i32,
    pub(crate) appends: bool,
    /// The version of the data that is cached after the release, or 0.
    pub(crate) version: u64,
}

fn sync_errors(inode: &Inode) -> u32 {
    inode
        .uses
        .lock()
        .as_ref()
        .map_or(0, |uses| uses.sync_errors.0)
}

impl OpenFile {
    pub(crate) fn new(new: NewOpenFile) -> OpenFile {
        OpenFile {
            writable: new.flags & libc::O_ACCMODE != libc::O_RDONLY,
            sync_errors: AtomicU32::new(sync_errors(new.guard.inode())),
            guard: new.guard,
            lower: Mutex::new(Lower {
                file: new.lower,
                pin: None,
            }),
            flags: new.flags,
            written: AtomicBool::new(false),
            locked: AtomicU8::new(NEVER_LOCKED),
            is_uncached: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            appends: new.appends,
            version: new.version,
            opener: AtomicU64::new(0),
        }
    }

    pub(crate) fn opener(&self) -> OpenerIds {
        OpenerIds::from_word(self.opener.load(Ordering::Relaxed))
    }

    pub(crate) fn set_opener(&self, opener: OpenerIds) {
        self.opener.store(opener.word(), Ordering::Relaxed);
    }

    pub(crate) fn node(&self) -> NodeId {
        self.inode().node()
    }

    pub(crate) fn inode(&self) -> &Arc<Inode> {
        self.guard.inode()
    }

    pub(crate) fn guard(&self) -> &UseGuard {
        &self.guard
    }

    pub(crate) fn path(&self) -> DataPath {
        self.guard.path()
    }

    pub(crate) fn is_passthrough(&self) -> bool {
        self.guard.path() == DataPath::Passthrough
    }

    pub(crate) fn mark_written(&self) {
        self.written.store(true, Ordering::Relaxed);
    }

    /// What an fsync(2) says that was carried out by a lower file of its own. That hears of an error only if no other
    /// has, but each descriptor that was open is told once (errseq_t).
    pub(super) fn synced(&self, synced: Result<()>) -> Result<()> {
        let mut uses = self.inode().uses.lock();
        let Some(uses) = uses.as_mut().filter(|_| self.is_passthrough()) else {
            return synced;
        };
        let (count, last) = &mut uses.sync_errors;
        if let Err(error @ (Errno::EIO | Errno::ENOSPC | Errno::EDQUOT)) = synced {
            (*count, *last) = (count.wrapping_add(1), error);
        }
        let told = self.sync_errors.swap(*count, Ordering::Relaxed);
        match synced {
            Ok(()) if told != *count => Err(*last),
            synced => synced,
        }
    }

    pub(crate) fn flags(&self) -> i32 {
        self.flags
    }

    pub(crate) fn has_lower(&self) -> bool {
        self.lower.lock().file.is_some()
    }

    pub(crate) fn flock(&self) -> Option<LockKind> {
        lock_kind(self.locked.load(Ordering::Relaxed))
    }

    /// Whether its lower file carries, or carried, a `flock(2)`.
    pub(crate) fn was_locked(&self) -> bool {
        self.locked.load(Ordering::Relaxed) != NEVER_LOCKED
    }

    /// It carries this lock; [`LockKind::Unlock`] for one that was given up.
    pub(crate) fn set_flock(&self, kind: Option<LockKind>) {
        let locked = match kind {
            None => NEVER_LOCKED,
            Some(LockKind::Unlock) => UNLOCKED,
            Some(kind) => lock_number(kind),
        };
        self.locked.store(locked, Ordering::Relaxed);
    }

    /// Makes all requests for it fail from now on.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
        let mut lower = self.lower.lock();
        let lost = std::mem::take(&mut *lower);
        drop(lower);
        drop(lost);
    }

    pub(crate) fn kept(&self) -> Option<Arc<LowerFile>> {
        self.lower.lock().file.clone()
    }

    /// Takes the lower file out, and keeps its inode by `pin`.
    pub(super) fn take(&self, pin: Descriptor) -> Option<Arc<LowerFile>> {
        let mut lower = self.lower.lock();
        let taken = lower.file.take();
        if taken.is_some() {
            lower.pin = Some(pin);
        }
        taken
    }

    pub(super) fn keep(&self, file: Arc<LowerFile>) -> Arc<LowerFile> {
        let mut lower = self.lower.lock();
        // Another thread may have been faster: there is one lower file, and its locks count.
        Arc::clone(lower.file.get_or_insert(file))
    }
}

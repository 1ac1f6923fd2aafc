//! Locks of a session that is saved.
//!
//! Two processes cannot hold one lock. So the locks are released when a session was saved, for the next
//! process to take, and are taken again by the first request that arrives here nevertheless: the migration
//! was cancelled. In between, another process can take a lock, here as there. Requests for the open file
//! then fail with EIO.

use super::format::RANGES_MAX;
use crate::files::OpenFile;
use crate::files::OwnerFile;
use crate::host::Host;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thrufs::{Errno, Result};
use thrufs_abi::{LockOwner, NodeId};
use thrufs_sys::lock::{self, END_OF_FILE, LockKind, RangeLock};

#[derive(Default)]
pub(crate) struct Held {
    pub(super) owners: Vec<HeldRanges>,
    /// Open files, and the kinds of their `flock(2)`.
    pub(super) flocks: Vec<(Arc<OpenFile>, LockKind)>,
}

pub(crate) struct HeldRanges {
    pub(super) node: NodeId,
    pub(super) owner: LockOwner,
    pub(super) file: Arc<OwnerFile>,
    pub(super) ranges: Vec<RangeLock>,
}

#[derive(Default)]
pub(crate) struct Suspended {
    /// Checked by every request for an open file.
    is_so: AtomicBool,
    held: parking_lot::Mutex<Held>,
}

const EVERYTHING: RangeLock = RangeLock {
    kind: LockKind::Unlock,
    start: 0,
    end: END_OF_FILE,
    pid: 0,
};

/// The locks that an open file carries; needs Linux 6.5 or so.
fn ranges_of(fd: impl AsFd) -> Result<Vec<RangeLock>> {
    let mut ranges = Vec::new();
    let mut wanted = EVERYTHING;
    while let Some(found) = lock::ofd_get(&fd, &wanted)? {
        ranges.push(found);
        if ranges.len() as u32 > RANGES_MAX {
            return Err(Errno::ENOLCK);
        }
        if found.end >= END_OF_FILE {
            break;
        }
        wanted.start = found.end + 1;
    }
    Ok(ranges)
}

pub(crate) fn give_up_ranges(fd: impl AsFd) {
    if let Err(error) = lock::ofd_set(fd, &EVERYTHING) {
        tracing::debug!(%error, "cannot release locks");
    }
}

impl Host {
    /// The locks that clients hold.
    pub(super) fn held_locks(&self) -> Result<Held> {
        let mut held = Held::default();
        for ((node, owner), file) in self.locks.all() {
            let ranges = ranges_of(&file.fd)?;
            held.owners.push(HeldRanges {
                node,
                owner,
                file,
                ranges,
            });
        }
        let files = self.files.iter().map(|(_, file)| file);
        held.flocks = files
            .filter_map(|file| file.flock().map(|kind| (file, kind)))
            .collect();
        Ok(held)
    }

    /// Releases the locks, until a request arrives here.
    pub(super) fn suspend_locks(&self, held: Held) {
        if held.owners.is_empty() && held.flocks.is_empty() {
            return;
        }
        for owner in &held.owners {
            give_up_ranges(&owner.file.fd);
        }
        for (file, _) in &held.flocks {
            if let Ok(lower) = self.lower(file, false) {
                let _ = lock::flock(&*lower, LockKind::Unlock);
            }
        }
        *self.suspended.held.lock() = held;
        self.suspended.is_so.store(true, Ordering::Release);
    }

    /// Takes the locks again, if they were released.
    #[inline]
    pub(crate) fn have_locks(&self) {
        if self.suspended.is_so.load(Ordering::Acquire) {
            self.take_locks_again();
        }
    }

    #[cold]
    fn take_locks_again(&self) {
        let mut held = self.suspended.held.lock();
        let taken = std::mem::take(&mut *held);
        for owner in &taken.owners {
            if let Err(error) = self.take_ranges(owner.file.as_ref(), &owner.ranges) {
                tracing::error!(node = owner.node.0, %error, "cannot restore a lock");
                if let Some(file) = self.files.get(owner.file.handle.0) {
                    file.lose();
                }
            }
        }
        for (file, kind) in &taken.flocks {
            let locked = self
                .lower(file, false)
                .and_then(|lower| Ok(lock::flock(&*lower, *kind)?));
            if let Err(error) = locked {
                tracing::error!(node = file.node().0, %error, "cannot restore a lock");
                file.lose();
            }
        }
        // Other requests wait at the mutex.
        self.suspended.is_so.store(false, Ordering::Release);
    }

    pub(super) fn take_ranges(&self, file: &OwnerFile, ranges: &[RangeLock]) -> Result<()> {
        for range in ranges {
            if range.kind != LockKind::Unlock {
                lock::ofd_set(&file.fd, range)?;
            }
        }
        Ok(())
    }
}

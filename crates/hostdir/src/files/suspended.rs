//! Locks of a session that is saved.
//!
//! Two processes cannot hold one lock. So the locks are released when a session was saved, for the next
//! process to take, and are taken again by the first request that arrives here nevertheless: the migration
//! was cancelled. In between, another process can take a lock, here as there. Requests for the open file
//! then fail with EIO.

use super::lock_owners::OwnerFile;
use super::open_file::OpenFile;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use thrufs::{Errno, Result};
use thrufs_sys::lock::{self, END_OF_FILE, LockKind, RangeLock};

/// Most ranges of one owner.
pub(crate) const RANGES_MAX: u32 = 1 << 16;

#[derive(Default)]
pub(crate) struct Held {
    pub(crate) owners: Vec<(Arc<OwnerFile>, Vec<RangeLock>)>,
    /// Open files, and the kinds of their `flock(2)`.
    pub(crate) flocks: Vec<(Arc<OpenFile>, LockKind)>,
}

#[derive(Default)]
pub(crate) struct Suspended {
    /// Checked by every request for an open file.
    pub(super) is_so: AtomicBool,
    pub(super) held: parking_lot::Mutex<Held>,
}

const EVERYTHING: RangeLock = RangeLock {
    kind: LockKind::Unlock,
    start: 0,
    end: END_OF_FILE,
    pid: 0,
};

/// The locks that an open file carries; needs Linux 6.5 or so.
pub(super) fn ranges_of(fd: impl AsFd) -> Result<Vec<RangeLock>> {
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

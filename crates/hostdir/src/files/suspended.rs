//! Locks of a session that is saved.
//!
//! Two processes cannot hold one lock. So the locks are released when a session was saved, for the next
//! process to take, and are taken again by the first request that arrives here nevertheless: the migration
//! was cancelled. In between, another process can take a lock, here as there. Requests for the open file
//! then fail with EIO.

use super::lock_owners::{OwnerFile, own_locks};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use thrufs::{Errno, Result};
use thrufs_sys::lock::{END_OF_FILE, RangeLock};

/// Most ranges of one owner.
pub(crate) const RANGES_MAX: u32 = 1 << 16;

/// The owners of locks, and the ranges that they hold. Open files know their `flock(2)` themselves.
pub(crate) type Held = Vec<(Arc<OwnerFile>, Vec<RangeLock>)>;

#[derive(Default)]
pub(crate) struct Suspended {
    /// Checked by every request for an open file.
    pub(super) is_so: AtomicBool,
    pub(super) held: parking_lot::Mutex<Held>,
}

/// The locks that an open file carries.
pub(super) fn ranges_of(fd: impl AsFd) -> Result<Vec<RangeLock>> {
    let most = RANGES_MAX as usize;
    let ranges: Vec<RangeLock> = own_locks(fd, 0, END_OF_FILE)
        .take(most + 1)
        .collect::<Result<_>>()?;
    match ranges.len() > most {
        true => Err(Errno::ENOLCK),
        false => Ok(ranges),
    }
}

//! Releases the locks of a session that is saved, and takes them again.

use super::Files;
use super::lock_owners::{OwnerFile, give_up_ranges};
use super::open_file::OpenFile;
use super::suspended::{Held, ranges_of};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs::Result;
use thrufs_sys::lock::{self, LockKind, RangeLock};

impl Files {
    /// The ranges that clients have locked.
    pub(crate) fn held_locks(&self) -> Result<Held> {
        let owners = self.locks.all().into_iter();
        owners
            .map(|owner| {
                let ranges = ranges_of(&owner.fd)?;
                Ok((owner, ranges))
            })
            .collect()
    }

    /// Open files with a `flock(2)`, and its kind.
    fn flocks(&self) -> impl Iterator<Item = (Arc<OpenFile>, LockKind)> {
        let files = self.files.iter();
        files.filter_map(|(_, file)| file.flock().map(|kind| (file, kind)))
    }

    /// Releases the locks, until a request arrives here.
    pub(crate) fn suspend_locks(&self, held: Held) {
        for (owner, _) in &held {
            give_up_ranges(&owner.fd);
        }
        for (file, _) in self.flocks() {
            if let Ok(lower) = self.lower(&file, false) {
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
        for (owner, ranges) in &std::mem::take(&mut *held) {
            if let Err(error) = self.take_ranges(owner, ranges) {
                let note = owner.note();
                tracing::error!(node = note.node.0, %error, "cannot restore a lock");
                self.files_of_owner(&note)
                    .iter()
                    .for_each(|file| file.lose());
            }
        }
        for (file, kind) in self.flocks() {
            let locked = self
                .lower(&file, false)
                .and_then(|lower| Ok(lock::flock(&*lower, kind)?));
            if let Err(error) = locked {
                tracing::error!(node = file.node().0, %error, "cannot restore a lock");
                file.lose();
            }
        }
        // Other requests wait at the mutex.
        self.suspended.is_so.store(false, Ordering::Release);
    }

    pub(crate) fn take_ranges(&self, file: &OwnerFile, ranges: &[RangeLock]) -> Result<()> {
        for range in ranges {
            if range.kind != LockKind::Unlock {
                lock::ofd_set(&file.fd, range)?;
            }
        }
        Ok(())
    }
}

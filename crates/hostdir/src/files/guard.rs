//! One open of an inode, counted as long as it lasts.

use super::intent::{executes, writes};
use crate::filter::Filter;
use crate::quota::QuotaCharge;
use crate::tree::{Inode, Noted, Use};
use std::sync::{Arc, OnceLock};
use thrufs::BackingId;
use thrufs_policy::DataPath;

/// One open, counted until it is dropped.
pub(crate) struct UseGuard {
    inode: Arc<Inode>,
    path: DataPath,
    backing: Option<BackingId>,
    filter: Option<Arc<Filter>>,
    /// Of its OPEN.
    flags: i32,
    /// For the user who opened it, where that costs a descriptor.
    charge: OnceLock<QuotaCharge>,
}

impl UseGuard {
    pub(crate) fn hold(&self, charge: Option<QuotaCharge>) {
        if let Some(charge) = charge {
            let _ = self.charge.set(charge);
        }
    }

    pub(crate) fn charge(&self) -> Option<&QuotaCharge> {
        self.charge.get()
    }

    /// The filter that redacts what readers see.
    pub(crate) fn filter(&self) -> Option<&Arc<Filter>> {
        self.filter.as_ref()
    }

    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    pub(crate) fn path(&self) -> DataPath {
        self.path
    }

    pub(crate) fn backing(&self) -> Option<BackingId> {
        self.backing
    }
    fn end(&self) {
        let mut slot = self.inode.uses.lock();
        let Some(current) = slot.as_mut() else { return };
        current.opens -= 1;
        current.writable_opens -= u32::from(writes(self.flags));
        current.executing_opens -= u32::from(executes(self.flags));
        if current.opens > 0 {
            return;
        }
        let ended = slot.take();
        drop(slot);
        if self.inode.noted.has(Noted::LostAName) && !self.inode.lower.is_only_held() {
            // Perhaps the last reference: a file without names is freed then.
            self.inode.lower.drop_descriptor();
        }
        // Giving up a registration is a system call: outside the lock.
        drop(ended);
    }
}

impl Drop for UseGuard {
    fn drop(&mut self) {
        self.end();
        self.inode.mount().idle_expiry.file_closed();
    }
}

/// Counts an open of an inode, whose uses are locked.
pub(super) fn join(current: &mut Use, inode: &Arc<Inode>, flags: i32) -> UseGuard {
    inode.mount().idle_expiry.file_opened();
    current.opens += 1;
    current.writable_opens += u32::from(writes(flags));
    current.executing_opens += u32::from(executes(flags));
    UseGuard {
        inode: Arc::clone(inode),
        path: current.path,
        backing: current.backing(),
        filter: current.filter.clone(),
        flags,
        charge: OnceLock::new(),
    }
}

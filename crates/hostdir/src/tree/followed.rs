//! How changes of an inode are told, if they are: see [`follow`](crate::follow).

use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};
use thrufs_abi::NodeId;

#[derive(Default)]
pub(crate) struct Followed {
    bits: AtomicU8,
    /// Of the directory in which it was found, 16 bits; 0 for none.
    found_in: AtomicU16,
}

impl Followed {
    /// It has a mark of its own; of a directory, for its entries as well.
    pub(crate) const MARKED: u8 = 1;
    /// It has one name, which was found in a marked directory.
    pub(crate) const BY_ITS_NAME: u8 = 2;
    /// It could not be marked.
    pub(crate) const REFUSED: u8 = 4;
    /// Its mark is one of the whole file system.
    pub(crate) const BY_FILE_SYSTEM: u8 = 32;
    /// It was listed without attributes of the entries.
    pub(crate) const LISTED: u8 = 16;
    /// A listing has begun, and none has come to its end since: the kernel's copy may be unfinished.
    const UNFINISHED: u8 = 64;
    /// The kernel's copy of the listing is to be dropped when it is finished.
    const OUTDATED: u8 = 128;
    /// It was found in several directories: an open file keeps it known when that of its name is forgotten,
    /// and has no mark any more.
    const MOVED: u8 = 8;

    pub(crate) fn any(&self, which: u8) -> bool {
        self.bits.load(Ordering::SeqCst) & which != 0
    }

    /// Returns whether it was set before.
    pub(crate) fn set(&self, which: u8) -> bool {
        self.bits.fetch_or(which, Ordering::SeqCst) & which != 0
    }

    pub(crate) fn clear(&self, which: u8) {
        self.bits.fetch_and(!which, Ordering::SeqCst);
    }

    /// A listing of it begins, which the kernel copies.
    pub(crate) fn begin_listing(&self) {
        self.set(Self::UNFINISHED);
    }

    /// Returns whether the kernel has to drop its copy.
    pub(crate) fn end_listing(&self) -> bool {
        self.clear(Self::UNFINISHED);
        let before = self.bits.fetch_and(!Self::OUTDATED, Ordering::SeqCst);
        before & Self::OUTDATED != 0
    }

    /// Whether the kernel's copy of the listing may be dropped now, or is at the end of one. The kernel does not
    /// begin an unfinished copy anew whose last page is gone: it would keep no listing of this directory any more
    /// (`fuse_add_dirent_to_cache`, Linux 6.18).
    pub(crate) fn may_drop_listing(&self) -> bool {
        if !self.any(Self::UNFINISHED) {
            return true;
        }
        self.set(Self::OUTDATED);
        // It may have come to its end meanwhile.
        !self.any(Self::UNFINISHED)
    }

    /// Notes a directory in which it was found; false if it is not the only one.
    pub(crate) fn record_found_in(&self, directory: NodeId) -> bool {
        // One directory in 65,535 is taken for the same.
        let directory = (directory.0 % u64::from(u16::MAX)) as u16 + 1;
        let before = self.found_in.swap(directory, Ordering::SeqCst);
        if before != 0 && before != directory {
            self.set(Self::MOVED);
        }
        !self.any(Self::MOVED)
    }
}

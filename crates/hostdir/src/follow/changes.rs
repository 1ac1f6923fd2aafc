//! Counts of what happened in directories: a lookup that was disturbed sees that.

use crate::identity::Identity;
use std::sync::atomic::{AtomicU64, Ordering};

/// Directories share a count with others: a change in one of them disturbs lookups in all of those.
pub(super) const COUNTS: usize = 1024;

pub(super) struct Changes {
    counts: [AtomicU64; COUNTS],
    all: AtomicU64,
}

/// The count of a directory, and that of all, at a moment.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    index: usize,
    count: u64,
    all: u64,
}

impl Default for Changes {
    fn default() -> Changes {
        Changes {
            counts: [const { AtomicU64::new(0) }; COUNTS],
            all: AtomicU64::new(0),
        }
    }
}

impl Changes {
    pub(super) fn seen(&self, directory: &Identity) -> Seen {
        let index = index_of(directory.parts().1);
        Seen {
            index,
            count: self.counts[index].load(Ordering::SeqCst),
            all: self.all.load(Ordering::SeqCst),
        }
    }

    /// Whether something happened in the directory since.
    pub(super) fn since(&self, seen: Seen) -> bool {
        self.counts[seen.index].load(Ordering::SeqCst) != seen.count
    }

    /// Whether something happened anywhere since.
    pub(super) fn anywhere_since(&self, seen: Seen) -> bool {
        self.all.load(Ordering::SeqCst) != seen.all
    }

    /// Something happened in the directory with this handle.
    pub(super) fn happened(&self, handle: &[u8]) {
        self.counts[index_of(handle)].fetch_add(1, Ordering::SeqCst);
        self.all.fetch_add(1, Ordering::SeqCst);
    }

    /// Anything may have happened.
    pub(super) fn lost(&self) {
        for count in &self.counts {
            count.fetch_add(1, Ordering::SeqCst);
        }
        self.all.fetch_add(1, Ordering::SeqCst);
    }
}

/// The count of an inode, by its handle.
pub(super) fn index_of(handle: &[u8]) -> usize {
    hash_of(handle) as usize % COUNTS
}

/// FNV-1a, the upper half first.
pub(super) fn hash_of(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    hash.rotate_left(32)
}

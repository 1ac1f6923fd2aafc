//! Words of a record in shared memory, written by plain stores. Never panics: offsets are computed or checked
//! before, not read from the memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs_sys::shared_memory::{Outside, SharedMapping};

/// From an offset on. Clones share the memory.
#[derive(Clone, Debug)]
pub(super) struct Words {
    mapping: Arc<SharedMapping>,
    start: usize,
}

impl Words {
    pub(super) fn new(mapping: Arc<SharedMapping>, start: usize) -> Words {
        Words { mapping, start }
    }

    pub(super) fn mapping(&self) -> &Arc<SharedMapping> {
        &self.mapping
    }

    pub(super) fn load(&self, at: usize) -> u64 {
        let loaded = self.mapping.load_u64(self.start + at, Ordering::Acquire);
        loaded.unwrap_or(0)
    }

    pub(super) fn load_u16(&self, at: usize) -> u16 {
        let loaded = self.mapping.load_u16(self.start + at, Ordering::Acquire);
        loaded.unwrap_or(0)
    }

    pub(super) fn store(&self, at: usize, value: u64) {
        write(|| {
            self.mapping
                .store_u64(self.start + at, value, Ordering::Release)
        });
    }

    pub(super) fn store_u16(&self, at: usize, value: u16) {
        write(|| {
            self.mapping
                .store_u16(self.start + at, value, Ordering::Release)
        });
    }

    pub(super) fn copy_in(&self, at: usize, bytes: &[u8]) {
        write(|| self.mapping.copy_in(self.start + at, bytes));
    }
}

fn write(write: impl FnOnce() -> Result<(), Outside>) {
    if lives() {
        let written = write();
        debug_assert!(written.is_ok(), "outside the memory");
    }
}

/// Whether a store takes place. Tests let the process die before it.
#[cfg(not(test))]
#[inline]
fn lives() -> bool {
    true
}

#[cfg(test)]
use super::tests::dying::lives;

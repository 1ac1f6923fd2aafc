//! The DAX window of a connection: what the front end has mapped, and what it can do. 72 bytes per mapping, of
//! which the first word, written last, says whether there is one.

use super::words::Words;
use crate::limits::MAPPINGS_MAX;
use std::sync::Arc;
use thrufs_sys::shared_memory::SharedMapping;

const FIELDS: usize = 8;
const HEADER_BYTES: usize = 64;
const MAPPING_BYTES: usize = 8 * (1 + FIELDS);

/// The fields of a mapping, as `window` defines them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordedMapping(pub(crate) [u64; FIELDS]);

#[derive(Clone, Debug)]
pub(crate) struct WindowRecord(Words);

impl WindowRecord {
    pub(crate) const BYTES: usize = HEADER_BYTES + MAPPING_BYTES * MAPPINGS_MAX;

    pub(super) fn new(mapping: Arc<SharedMapping>, at: usize) -> WindowRecord {
        WindowRecord(Words::new(mapping, at))
    }

    /// What the front end can do, as `window` encodes it; 0 before it is known.
    pub(crate) fn abilities(&self) -> u64 {
        self.0.load(0)
    }

    pub(crate) fn set_abilities(&self, abilities: u64) {
        self.0.store(0, abilities);
    }

    pub(crate) fn load(&self, slot: usize) -> Option<RecordedMapping> {
        let at = place(slot)?;
        let fields = std::array::from_fn(|field| self.0.load(at + 8 * (1 + field)));
        (self.0.load(at) == 1).then_some(RecordedMapping(fields))
    }

    pub(crate) fn store(&self, slot: usize, mapping: &RecordedMapping) {
        let Some(at) = place(slot) else {
            return;
        };
        for (field, value) in mapping.0.iter().enumerate() {
            self.0.store(at + 8 * (1 + field), *value);
        }
        self.0.store(at, 1);
    }

    pub(crate) fn clear(&self, slot: usize) {
        if let Some(at) = place(slot) {
            self.0.store(at, 0);
        }
    }
}

fn place(slot: usize) -> Option<usize> {
    (slot < MAPPINGS_MAX).then_some(HEADER_BYTES + slot * MAPPING_BYTES)
}

//! What is mapped in the window, bounded, and recorded for the next worker.

use crate::journal::{RecordedMapping, WindowRecord};
use std::collections::BTreeMap;

/// There is one mapping for each of these at most.
use crate::limits::WINDOW_UNIT_BYTES as RANGE_BYTES;

/// What everything is aligned to.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Why a request for the window is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Invalid {
    #[error("a range is not aligned to pages, empty or outside of the window")]
    Range,
    #[error("another mapping is in the way")]
    Overlap,
    #[error("the window has as many mappings as ranges of 2 MiB")]
    TooMany,
    #[error("a range to unmap cuts a mapping")]
    Cut,
    #[error("the file is mapped for reading")]
    ReadOnly,
}

/// Identifies a file: device and inode number.
pub(super) type FileId = (u64, u64);

/// A mapping of the guest's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(super) node: u64,
    /// In bytes from the start of the window.
    pub(super) at: u64,
    /// In bytes from the start of the file.
    pub(super) offset: u64,
    /// Bytes that the guest has asked for.
    pub(super) length: u64,
    /// Bytes that the front end has mapped: fewer where the file ends and the front end cannot map beyond.
    pub(super) mapped: u64,
    pub(super) writable: bool,
    /// The front end may or may not have it: it is unmapped before the place is used again.
    pub(super) is_doubtful: bool,
    pub(super) file: FileId,
}

impl Mapping {
    fn end(&self) -> u64 {
        // Checked when it was made.
        self.at + self.length
    }

    pub(super) fn is_short(&self) -> bool {
        self.mapped < self.length
    }
}

/// The mappings by their place.
#[derive(Debug)]
pub(crate) struct Table {
    window_bytes: u64,
    mappings: BTreeMap<u64, (usize, Mapping)>,
    free: Vec<usize>,
    record: Option<WindowRecord>,
}

impl Table {
    /// The mappings that `record` has of the worker that died, none without.
    pub(super) fn new(window_bytes: u64, record: Option<WindowRecord>) -> Table {
        let slots = (window_bytes / RANGE_BYTES) as usize;
        let mut table = Table {
            window_bytes,
            mappings: BTreeMap::new(),
            free: Vec::new(),
            record,
        };
        for slot in (0..slots).rev() {
            let recorded = table.record.as_ref().and_then(|record| record.load(slot));
            match recorded.map(Mapping::from) {
                Some(mapping) if table.require_free(mapping.at, mapping.length).is_ok() => {
                    table.mappings.insert(mapping.at, (slot, mapping));
                }
                _ => table.free.push(slot),
            }
        }
        table
    }

    pub(super) fn len(&self) -> usize {
        self.mappings.len()
    }

    pub(super) fn require_range(&self, at: u64, length: u64) -> Result<(), Invalid> {
        let is_aligned = (at | length).is_multiple_of(PAGE_BYTES) && length > 0;
        let is_within = at
            .checked_add(length)
            .is_some_and(|end| end <= self.window_bytes);
        if is_aligned && is_within {
            Ok(())
        } else {
            Err(Invalid::Range)
        }
    }

    /// Whether the range is valid and nothing is mapped there.
    pub(super) fn require_free(&self, at: u64, length: u64) -> Result<(), Invalid> {
        self.require_range(at, length)?;
        let before = self.mappings.range(..at + length).next_back();
        if before.is_some_and(|(_, (_, mapping))| mapping.end() > at) {
            return Err(Invalid::Overlap);
        }
        Ok(())
    }

    /// The mapping at exactly this range.
    pub(super) fn get(&self, at: u64, length: u64) -> Option<Mapping> {
        let (_, mapping) = self.mappings.get(&at)?;
        (mapping.length == length).then_some(*mapping)
    }

    /// All mappings within the range, which must not cut one.
    pub(super) fn within(&self, at: u64, length: u64) -> Result<Vec<Mapping>, Invalid> {
        self.require_range(at, length)?;
        let end = at + length;
        let overlapping = self
            .mappings
            .range(..end)
            .rev()
            .map(|(_, (_, mapping))| *mapping);
        let overlapping: Vec<Mapping> = overlapping
            .take_while(|mapping| mapping.end() > at)
            .collect();
        let is_cut = |mapping: &Mapping| mapping.at < at || mapping.end() > end;
        if overlapping.iter().any(is_cut) {
            return Err(Invalid::Cut);
        }
        Ok(overlapping)
    }

    pub(super) fn all(&self) -> Vec<Mapping> {
        self.mappings
            .values()
            .map(|(_, mapping)| *mapping)
            .collect()
    }

    /// Adds a mapping, or records that one has changed.
    pub(super) fn put(&mut self, mapping: Mapping) -> Result<(), Invalid> {
        let slot = match self.mappings.get(&mapping.at) {
            Some((slot, _)) => *slot,
            None => self.free.pop().ok_or(Invalid::TooMany)?,
        };
        if let Some(record) = &self.record {
            record.store(slot, &mapping.into());
        }
        self.mappings.insert(mapping.at, (slot, mapping));
        Ok(())
    }

    pub(super) fn remove(&mut self, at: u64) {
        if let Some((slot, _)) = self.mappings.remove(&at) {
            if let Some(record) = &self.record {
                record.clear(slot);
            }
            self.free.push(slot);
        }
    }

    pub(super) fn has_mapped(&self, file: FileId) -> bool {
        self.mappings
            .values()
            .any(|(_, mapping)| mapping.file == file)
    }

    pub(super) fn of_node(&self, node: u64) -> Vec<Mapping> {
        let mappings = self.mappings.values().map(|(_, mapping)| *mapping);
        mappings.filter(|mapping| mapping.node == node).collect()
    }

    /// The size up to which the live mappings of `node` cover the file; `None` when they cover what there may be.
    pub(super) fn covered(&self, node: u64) -> Option<u64> {
        let mappings = self.mappings.values().map(|(_, mapping)| mapping);
        let short = mappings.filter(|mapping| mapping.node == node && mapping.is_short());
        short.map(|mapping| mapping.offset + mapping.mapped).min()
    }
}

impl From<Mapping> for RecordedMapping {
    fn from(mapping: Mapping) -> RecordedMapping {
        let flags = u64::from(mapping.writable) | u64::from(mapping.is_doubtful) << 1;
        RecordedMapping([
            mapping.node,
            mapping.at,
            mapping.offset,
            mapping.length,
            mapping.mapped,
            flags,
            mapping.file.0,
            mapping.file.1,
        ])
    }
}

impl From<RecordedMapping> for Mapping {
    fn from(recorded: RecordedMapping) -> Mapping {
        let RecordedMapping([node, at, offset, length, mapped, flags, device, inode]) = recorded;
        Mapping {
            node,
            at,
            offset,
            length,
            mapped: mapped.min(length),
            writable: flags & 1 != 0,
            is_doubtful: flags & 2 != 0,
            file: (device, inode),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;

    fn mapping(node: u64, at: u64, length: u64) -> Mapping {
        Mapping {
            node,
            at,
            offset: 0,
            length,
            mapped: length,
            writable: true,
            is_doubtful: false,
            file: (8, node),
        }
    }

    #[test]
    fn the_next_worker_has_the_same_mappings() {
        let journal = Journal::new().unwrap();
        let new_table = || Table::new(4 * RANGE_BYTES, Some(journal.window()));
        let mut table = new_table();
        let doubtful = Mapping {
            is_doubtful: true,
            ..mapping(2, RANGE_BYTES, 4096)
        };
        // No more is mapped than the place is long, whatever is recorded.
        let mapped = doubtful.mapped + 1;
        table.put(Mapping { mapped, ..doubtful }).unwrap();
        table.put(mapping(1, 0, 8192)).unwrap();
        table.put(mapping(3, 2 * RANGE_BYTES, 4096)).unwrap();
        table.remove(2 * RANGE_BYTES);
        assert_eq!(new_table().all(), [mapping(1, 0, 8192), doubtful]);
        assert!(new_table().has_mapped((8, 2)) && !new_table().has_mapped((8, 3)));
        assert_eq!(new_table().of_node(2), [doubtful]);
        assert_eq!(new_table().of_node(3), []);
        let certain = mapping(2, RANGE_BYTES, 4096);
        table.put(certain).unwrap();
        let mut next = new_table();
        assert_eq!(next.all(), [mapping(1, 0, 8192), certain]);
        next.put(mapping(4, 2 * RANGE_BYTES, 4096)).unwrap();
        next.put(mapping(5, 3 * RANGE_BYTES, 4096)).unwrap();
        assert_eq!(next.put(mapping(6, 8192, 4096)), Err(Invalid::TooMany));
        assert_eq!(new_table().len(), 4);
    }

    #[test]
    fn a_short_mapping_bounds_the_size_that_may_be_told() {
        let mut table = Table::new(4 * RANGE_BYTES, None);
        table.put(mapping(1, 0, RANGE_BYTES)).unwrap();
        assert_eq!(table.covered(1), None);
        let short = Mapping {
            offset: RANGE_BYTES,
            mapped: 8192,
            ..mapping(1, RANGE_BYTES, RANGE_BYTES)
        };
        table.put(short).unwrap();
        let later = Mapping {
            offset: 2 * RANGE_BYTES,
            at: 2 * RANGE_BYTES,
            ..short
        };
        table.put(later).unwrap();
        assert_eq!(table.covered(1), Some(RANGE_BYTES + 8192), "the first");
        assert_eq!(table.covered(2), None);
        table.remove(2 * RANGE_BYTES);
        table.remove(RANGE_BYTES);
        assert_eq!(table.covered(1), None);
    }
}

//! A table of shared values under ids that are never reused.
//!
//! An id is a slot's index with the slot's generation above it: a lookup is two array accesses, under the lock of
//! the slot. Freeing a slot raises its generation, so an earlier id finds nothing.
//!
//! **Ids from another process** may have any index, and a chunk is made for all indices near it. So if the
//! chunk would be mostly empty, the value is stored in a map of outliers. The memory of a table thus depends
//! on what is in it, and not on untrusted numbers. Until all values are there, each is an outlier.

use crate::chunks::Chunks;
use parking_lot::{Mutex, RwLock};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Slots in the first chunk, and enough chunks for 2^32 slots.
type SlotChunks<T> = Chunks<Box<[Slot<T>]>, 64, 27>;
/// A slot of this generation is retired: its ids would repeat. Two bits of ids stay free.
pub(crate) const GENERATION_MAX: u32 = u32::MAX >> 2;

/// Indices that are given back together: their records in the ledger are whole pages.
const BLOCK: u32 = 64;

/// A chunk is made for values of another process if it has at most so many slots per value.
const SLOTS_FOR_EACH: u64 = 16;
/// Chunks of at most so many slots are always made.
const ANY_CHUNK: u64 = 4096;

struct Slot<T>(RwLock<(u32, Option<Arc<T>>)>);

pub(crate) struct Slots<T> {
    chunks: SlotChunks<T>,
    free: Mutex<Free>,
    occupied: AtomicUsize,
    /// The generation of new slots.
    floor: AtomicU32,
    /// Values too far out for a slot, by index, with their generation.
    outliers: RwLock<HashMap<u32, (u32, Arc<T>)>>,
    has_outliers: AtomicBool,
}

/// Indices without a value: those that had one, and all from `next` on.
#[derive(Default)]
pub(crate) struct Free {
    pub(crate) indices: Vec<u32>,
    pub(crate) next: u32,
}

/// Calls `empty` with the ranges of indices that have no value, and get none meanwhile.
pub(crate) fn with_empty_blocks(free: &Mutex<Free>, empty: impl FnOnce(Vec<Range<u32>>)) {
    let mut indices = std::mem::take(&mut free.lock().indices);
    empty(empty_blocks(&mut indices));
    let mut free = free.lock();
    let freed_meanwhile = std::mem::replace(&mut free.indices, indices);
    free.indices.extend(freed_meanwhile);
}

/// The whole blocks of indices among free ones, one range for neighbours. Sorts the indices, the lowest last: they
/// are used first, so that other blocks stay empty.
fn empty_blocks(free: &mut [u32]) -> Vec<Range<u32>> {
    free.sort_unstable_by_key(|&index| Reverse(index));
    let mut blocks: Vec<Range<u32>> = Vec::new();
    for same in free
        .chunk_by(|one, other| one / BLOCK == other / BLOCK)
        .rev()
    {
        let first = same[0] / BLOCK * BLOCK;
        match (same.len() == BLOCK as usize, blocks.last_mut()) {
            (true, Some(last)) if last.end == first => last.end += BLOCK,
            (true, _) => blocks.push(first..first + BLOCK),
            (false, _) => {}
        }
    }
    blocks
}

/// The table is full: 2^32 values at once.
#[derive(Debug)]
pub(crate) struct Full;

impl<T> Slots<T> {
    /// A table that begins with the id `first` (1 for nodes: the root's).
    pub(crate) fn starting_at(first: u32) -> Slots<T> {
        Slots {
            chunks: Chunks::new(),
            free: Mutex::new(Free {
                indices: Vec::new(),
                next: first,
            }),
            occupied: AtomicUsize::new(0),
            floor: AtomicU32::new(0),
            outliers: RwLock::default(),
            has_outliers: AtomicBool::new(false),
        }
    }

    #[cold]
    fn outlier(&self, index: u32) -> Option<(u32, Arc<T>)> {
        if !self.has_outliers.load(Ordering::Acquire) {
            return None;
        }
        self.outliers.read().get(&index).cloned()
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        self.chunks.get(index)
    }

    fn slot_or_grow(&self, index: u32) -> Option<&Slot<T>> {
        self.chunks.get_or_make(index, |_, indices| {
            let floor = self.floor.load(Ordering::Relaxed);
            let empty = || Slot(RwLock::new((floor, None)));
            Some(indices.map(|_| empty()).collect())
        })
    }

    pub(crate) fn get(&self, id: u64) -> Option<Arc<T>> {
        let (index, generation) = (id as u32, (id >> 32) as u32);
        if let Some(slot) = self.slot(index) {
            let slot = slot.0.read();
            if slot.0 == generation && slot.1.is_some() {
                return slot.1.clone();
            }
        }
        let (of, value) = self.outlier(index)?;
        (of == generation).then_some(value)
    }

    /// The value in a slot, whatever its generation.
    pub(crate) fn get_by_index(&self, index: u32) -> Option<Arc<T>> {
        let there = self.slot(index).and_then(|slot| slot.0.read().1.clone());
        there.or_else(|| Some(self.outlier(index)?.1))
    }

    /// Inserts the value that `make` builds for its id.
    pub(crate) fn insert_with(&self, make: impl FnOnce(u64) -> T) -> Result<Arc<T>, Full> {
        let index = {
            let mut free = self.free.lock();
            match free.indices.pop() {
                Some(index) => index,
                None => loop {
                    let index = free.next;
                    free.next = index.checked_add(1).ok_or(Full)?;
                    if self.outlier(index).is_none() {
                        break index;
                    }
                },
            }
        };
        let mut slot = self.slot_or_grow(index).ok_or(Full)?.0.write();
        let value = Arc::new(make(u64::from(slot.0) << 32 | u64::from(index)));
        slot.1 = Some(Arc::clone(&value));
        self.occupied.fetch_add(1, Ordering::Relaxed);
        Ok(value)
    }

    /// Inserts a value of another process under its id. To be called before the table is used, and to be
    /// followed by [`settle`](Self::settle).
    ///
    /// `None` for an invalid id, one that is taken, or an index not below `indices`, so that an untrusted
    /// number cannot make the table arbitrarily large.
    pub(crate) fn insert_at(&self, id: u64, indices: u32, value: T) -> Option<Arc<T>> {
        let (index, generation) = (id as u32, (id >> 32) as u32);
        if index == 0 || index >= indices || generation >= GENERATION_MAX {
            return None;
        }
        if self.get_by_index(index).is_some() {
            return None;
        }
        let value = Arc::new(value);
        let mut outliers = self.outliers.write();
        outliers.insert(index, (generation, Arc::clone(&value)));
        self.has_outliers.store(true, Ordering::Release);
        self.occupied.fetch_add(1, Ordering::Relaxed);
        Some(value)
    }

    /// Moves outliers into slots where there are enough values for their chunk.
    fn take_in_outliers(&self) {
        let values = self.occupied.load(Ordering::Relaxed) as u64;
        let slots_max = values.saturating_mul(SLOTS_FOR_EACH).max(ANY_CHUNK);
        let mut free = self.free.lock();
        let mut outliers = self.outliers.write();
        outliers.retain(|&index, (generation, value)| {
            let may_have_slot = SlotChunks::<T>::length_at(index) <= slots_max;
            let slot = may_have_slot.then(|| self.slot_or_grow(index)).flatten();
            if let Some(slot) = slot {
                *slot.0.write() = (*generation, Some(Arc::clone(value)));
                free.next = free.next.max(index + 1);
            }
            slot.is_none()
        });
        outliers.shrink_to_fit();
        self.has_outliers
            .store(!outliers.is_empty(), Ordering::Release);
    }

    /// Makes empty slots ready for use, with ids that the other process, with generations up to `highest`,
    /// has not used. False when there are no such ids left.
    pub(crate) fn settle(&self, highest: u32) -> bool {
        let floor = match highest.checked_add(1) {
            Some(floor) if floor < GENERATION_MAX => floor,
            _ => return false,
        };
        self.floor.store(floor, Ordering::Relaxed);
        self.take_in_outliers();
        let mut free = self.free.lock();
        let next = free.next;
        free.indices.clear();
        for (index, slot) in self.chunks.iter() {
            let mut slot = slot.0.write();
            if slot.1.is_none() {
                slot.0 = floor;
                if index > 0 && index < next && self.outlier(index).is_none() {
                    free.indices.push(index);
                }
            }
        }
        true
    }

    pub(crate) fn generation_max(&self) -> u32 {
        let slots = self.chunks.iter();
        let highest = slots.map(|(_, slot)| slot.0.read().0).max().unwrap_or(0);
        let outliers = self.outliers.read();
        let outlying = outliers.values().map(|(generation, _)| *generation);
        outlying.max().unwrap_or(0).max(highest)
    }

    /// Removes the value under `id`, which finds nothing from now on.
    pub(crate) fn remove(&self, id: u64) -> Option<Arc<T>> {
        let (index, generation) = (id as u32, (id >> 32) as u32);
        let slot = self.slot(index).map(|slot| slot.0.write());
        let held = slot.filter(|slot| slot.0 == generation && slot.1.is_some());
        let Some(mut slot) = held else {
            return self.remove_outlier(index, generation);
        };
        let value = slot.1.take()?;
        self.occupied.fetch_sub(1, Ordering::Relaxed);
        slot.0 += 1;
        if slot.0 < GENERATION_MAX {
            drop(slot);
            self.free.lock().indices.push(index);
        }
        Some(value)
    }

    /// Its index is not used again until the free counter reaches it.
    #[cold]
    fn remove_outlier(&self, index: u32, generation: u32) -> Option<Arc<T>> {
        if !self.has_outliers.load(Ordering::Acquire) {
            return None;
        }
        let mut outliers = self.outliers.write();
        if outliers.get(&index)?.0 != generation {
            return None;
        }
        let (_, value) = outliers.remove(&index)?;
        self.occupied.fetch_sub(1, Ordering::Relaxed);
        Some(value)
    }

    /// The values and their ids, one slot after the other while the table changes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Arc<T>)> {
        let id = |index: u32, generation: u32| u64::from(generation) << 32 | u64::from(index);
        let outliers = self.outliers.read();
        let outlying: Vec<(u64, Arc<T>)> = outliers
            .iter()
            .map(|(index, (generation, value))| (id(*index, *generation), Arc::clone(value)))
            .collect();
        drop(outliers);
        let end = self.free.lock().next;
        let in_slots = (0..end).filter_map(move |index| {
            let slot = self.slot(index)?.0.read();
            let value = slot.1.as_ref()?;
            Some((id(index, slot.0), Arc::clone(value)))
        });
        in_slots.chain(outlying)
    }

    /// Calls `empty` with the ranges of indices that have no value, and get none meanwhile.
    pub(crate) fn with_empty_blocks(&self, empty: impl FnOnce(Vec<Range<u32>>)) {
        with_empty_blocks(&self.free, empty);
    }

    #[cfg(test)]
    fn slots(&self) -> usize {
        self.chunks.iter().count()
    }

    pub(crate) fn len(&self) -> usize {
        self.occupied.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_blocks_are_whole() {
        let mut free: Vec<u32> = (1..64).chain(64..192).chain(193..256).collect();
        free.extend(512..576);
        free.reverse();
        assert_eq!(empty_blocks(&mut free), [64..192, 512..576]);
        assert_eq!(free.last(), Some(&1));
        assert_eq!(empty_blocks(&mut []), []);
    }

    #[test]
    fn ids_are_never_reused() {
        let slots = Slots::starting_at(1);
        let first = *slots.insert_with(|id| id).expect("room");
        assert_eq!(first, 1);
        assert!(slots.remove(first).is_some());
        assert!(slots.remove(first).is_none());
        let second = *slots.insert_with(|id| id).expect("room");
        assert_eq!(second as u32, first as u32, "the slot is used again");
        assert_ne!(second, first);
        assert!(slots.get(first).is_none());
        assert_eq!(slots.get(second).as_deref(), Some(&second));
        assert_eq!(slots.len(), 1);
    }

    #[test]
    fn insert_at_keeps_ids() {
        const MANY: u32 = 1 << 20;
        let slots = Slots::starting_at(2);
        assert!(slots.insert_at(5 << 32 | 700, MANY, "a").is_some());
        assert!(slots.insert_at(3, MANY, "b").is_some());
        let refused = [
            3,
            9 << 32 | 3,
            0,
            7 << 32,
            u64::from(MANY),
            u64::MAX,
            1 << 62 | 9,
        ];
        for id in refused {
            assert!(slots.insert_at(id, MANY, "c").is_none(), "{id:#x}");
        }
        assert!(slots.settle(5));
        assert_eq!(slots.get(5 << 32 | 700).as_deref(), Some(&"a"));
        assert_eq!(slots.get(3).as_deref(), Some(&"b"));
        let mut ids = std::collections::HashSet::new();
        for _ in 0..2000 {
            let mut new = 0;
            let made = slots.insert_with(|id| {
                new = id;
                "new"
            });
            assert!(made.is_ok() && ids.insert(new), "{new:#x}");
            assert_eq!(new >> 32, 6, "a new id");
        }
        assert!(ids.iter().any(|id| *id as u32 == 699), "gaps are used");
        assert!(ids.iter().all(|id| *id as u32 > 0));
        assert_eq!(slots.generation_max(), 6);
        assert!(!slots.settle(GENERATION_MAX - 1));
    }

    #[test]
    fn restored_ids_take_bounded_memory() {
        const MANY: u32 = 1 << 24;
        let slots = Slots::starting_at(1);
        let ids: Vec<u64> = (0..40)
            .map(|at| 3 << 32 | (u64::from(MANY) - 1 - at * 65_536))
            .chain([3 << 32 | 5, 2 << 32 | 3000])
            .collect();
        for id in &ids {
            assert!(slots.insert_at(*id, MANY, *id).is_some(), "{id:#x}");
            assert!(slots.insert_at(*id + (1 << 32), MANY, 0).is_none(), "taken");
        }
        assert!(slots.settle(3));
        assert!(slots.slots() < 10_000, "{} slots", slots.slots());
        assert_eq!(slots.len(), ids.len());
        assert_eq!(slots.generation_max(), 4, "of those that are empty");
        let mut found: Vec<u64> = slots
            .iter()
            .map(|(id, value)| (id == *value).then_some(id).unwrap())
            .collect();
        let mut expected = ids.clone();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
        for id in &ids {
            assert_eq!(slots.get(*id).as_deref(), Some(id));
            assert_eq!(slots.get_by_index(*id as u32).as_deref(), Some(id));
            assert!(slots.get(*id + (1 << 32)).is_none());
        }
        // New values fill the slots there are.
        for _ in 0..20_000 {
            let mut new = 0;
            let made = slots.insert_with(|id| {
                new = id;
                id
            });
            assert!(made.is_ok() && !ids.contains(&new) && new >> 32 == 4);
        }
        assert!(slots.slots() < 50_000, "{} slots", slots.slots());
        for id in &ids {
            assert_eq!(slots.get(*id).as_deref(), Some(id), "still");
            assert!(slots.remove(*id + (1 << 32)).is_none());
            assert!(slots.remove(*id).is_some() && slots.remove(*id).is_none());
            assert!(slots.get(*id).is_none());
        }
        assert_eq!(slots.len(), 20_000);
    }

    #[test]
    fn outlier_index_is_not_given_twice() {
        let slots = Slots::starting_at(1);
        let far = 7 << 32 | 20_000;
        assert!(slots.insert_at(far, 1 << 20, far).is_some());
        assert!(slots.settle(7));
        assert!(slots.slots() < 10_000);
        let made = (0..30_000).map(|_| *slots.insert_with(|id| id).expect("room"));
        let indices: std::collections::HashSet<u32> = made.map(|id| id as u32).collect();
        assert_eq!(indices.len(), 30_000);
        assert!(!indices.contains(&20_000));
        assert_eq!(slots.get(far).as_deref(), Some(&far));
        assert_eq!(slots.len(), 30_001);
    }

    #[test]
    fn outliers_move_into_slots() {
        let slots = Slots::starting_at(1);
        // Backwards, so that each index comes too early.
        for index in (1..100_000u64).rev() {
            assert!(slots.insert_at(index, 1 << 20, index).is_some());
        }
        assert!(slots.settle(0));
        assert!(slots.outliers.read().is_empty());
        assert!((1..100_000).all(|id| slots.get(id).as_deref() == Some(&id)));
    }

    #[test]
    fn invalid_ids_find_nothing() {
        let slots = Slots::starting_at(1);
        slots.insert_with(|_| ()).expect("room");
        for id in [0, 2, 1 << 32 | 1, u64::MAX, u64::from(u32::MAX)] {
            assert!(slots.get(id).is_none(), "{id:#x}");
        }
    }
}

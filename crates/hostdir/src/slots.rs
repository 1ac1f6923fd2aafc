//! A table of shared values under numbers that are never used twice.
//!
//! An id is a slot's index with the slot's generation above it: looking one up is two array
//! accesses. Slots live in chunks of doubling size that are never moved or freed, so that readers
//! need no lock on the table; each slot has its own. Who frees a slot raises its generation, so an
//! id from before finds nothing.

use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Slots in the first chunk; chunk `k` has `FIRST << k`.
const FIRST: u64 = 64;
/// Enough chunks for 2^32 slots.
const CHUNKS: usize = 27;
/// A slot whose generation has come this far is retired: its ids would repeat.
/// Two bits of ids stay free.
pub(crate) const GENERATION_MAX: u32 = u32::MAX >> 2;

struct Slot<T>(RwLock<(u32, Option<Arc<T>>)>);

/// See the module.
pub(crate) struct Slots<T> {
    chunks: [OnceLock<Box<[Slot<T>]>>; CHUNKS],
    free: Mutex<Free>,
    occupied: AtomicUsize,
    /// The generation that new slots begin with.
    floor: AtomicU32,
}

struct Free {
    indices: Vec<u32>,
    next: u32,
}

/// The table is full: 2^32 values at once.
#[derive(Debug)]
pub(crate) struct Full;

impl<T> Slots<T> {
    /// A table whose first id will be `first` (1 for nodes: the root's).
    pub(crate) fn starting_at(first: u32) -> Slots<T> {
        Slots {
            chunks: std::array::from_fn(|_| OnceLock::new()),
            free: Mutex::new(Free {
                indices: Vec::new(),
                next: first,
            }),
            occupied: AtomicUsize::new(0),
            floor: AtomicU32::new(0),
        }
    }

    fn place(index: u32) -> (usize, usize) {
        let shifted = u64::from(index) + FIRST;
        let chunk = (shifted / FIRST).ilog2();
        (chunk as usize, (shifted - (FIRST << chunk)) as usize)
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let (chunk, offset) = Self::place(index);
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    fn slot_or_grow(&self, index: u32) -> Option<&Slot<T>> {
        let (chunk, offset) = Self::place(index);
        let slots = self.chunks.get(chunk)?.get_or_init(|| {
            let floor = self.floor.load(Ordering::Relaxed);
            (0..FIRST << chunk)
                .map(|_| Slot(RwLock::new((floor, None))))
                .collect()
        });
        slots.get(offset)
    }

    /// The value under `id`, if it is still there.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<T>> {
        let slot = self.slot(id as u32)?.0.read();
        if slot.0 == (id >> 32) as u32 {
            slot.1.clone()
        } else {
            None
        }
    }

    /// The value in a slot, whatever its generation.
    pub(crate) fn get_by_index(&self, index: u32) -> Option<Arc<T>> {
        self.slot(index)?.0.read().1.clone()
    }

    /// Puts in the value that `make` builds for its id.
    pub(crate) fn insert_with(&self, make: impl FnOnce(u64) -> T) -> Result<Arc<T>, Full> {
        let index = {
            let mut free = self.free.lock();
            match free.indices.pop() {
                Some(index) => index,
                None => {
                    let index = free.next;
                    free.next = index.checked_add(1).ok_or(Full)?;
                    index
                }
            }
        };
        let mut slot = self.slot_or_grow(index).ok_or(Full)?.0.write();
        let value = Arc::new(make(u64::from(slot.0) << 32 | u64::from(index)));
        slot.1 = Some(Arc::clone(&value));
        self.occupied.fetch_add(1, Ordering::Relaxed);
        Ok(value)
    }

    /// Puts a value back under the id that it had in another process. To be called before anybody else
    /// uses the table, and to be followed by [`settle`](Self::settle).
    ///
    /// `None` for an id that cannot be, or is taken, or whose index is not below `indices`, so that a number
    /// from elsewhere cannot have a table of any size made.
    pub(crate) fn insert_at(&self, id: u64, indices: u32, value: T) -> Option<Arc<T>> {
        let (index, generation) = (id as u32, (id >> 32) as u32);
        if index == 0 || index >= indices || generation >= GENERATION_MAX {
            return None;
        }
        let mut slot = self.slot_or_grow(index)?.0.write();
        if slot.1.is_some() {
            return None;
        }
        let value = Arc::new(value);
        *slot = (generation, Some(Arc::clone(&value)));
        self.occupied.fetch_add(1, Ordering::Relaxed);
        drop(slot);
        let mut free = self.free.lock();
        free.next = free.next.max(index + 1);
        Some(value)
    }

    /// Makes every slot that is empty ready for use, with ids that were not used in the process from
    /// which the others were taken over: there, no generation was above `highest`. False when
    /// there are no such ids left.
    pub(crate) fn settle(&self, highest: u32) -> bool {
        let floor = match highest.checked_add(1) {
            Some(floor) if floor < GENERATION_MAX => floor,
            _ => return false,
        };
        self.floor.store(floor, Ordering::Relaxed);
        let mut free = self.free.lock();
        let next = free.next;
        free.indices.clear();
        for (chunk, slots) in self.chunks.iter().enumerate() {
            let Some(slots) = slots.get() else { continue };
            let first = ((FIRST << chunk) - FIRST) as u32;
            for (slot, index) in slots.iter().zip(first..) {
                let mut slot = slot.0.write();
                if slot.1.is_none() {
                    slot.0 = floor;
                    if index > 0 && index < next {
                        free.indices.push(index);
                    }
                }
            }
        }
        true
    }

    /// The highest generation of a slot.
    pub(crate) fn generation_max(&self) -> u32 {
        let slots = self.chunks.iter().filter_map(OnceLock::get).flatten();
        slots.map(|slot| slot.0.read().0).max().unwrap_or(0)
    }

    /// Takes the value under `id` out; its id finds nothing from now on.
    pub(crate) fn remove(&self, id: u64) -> Option<Arc<T>> {
        let index = id as u32;
        let mut slot = self.slot(index)?.0.write();
        if slot.0 != (id >> 32) as u32 {
            return None;
        }
        let value = slot.1.take()?;
        self.occupied.fetch_sub(1, Ordering::Relaxed);
        slot.0 += 1;
        if slot.0 < GENERATION_MAX {
            drop(slot);
            self.free.lock().indices.push(index);
        }
        Some(value)
    }

    /// The values that are there while the table is gone through, one slot after the other, and their
    /// ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Arc<T>)> {
        let end = self.free.lock().next;
        (0..end).filter_map(|index| {
            let slot = self.slot(index)?.0.read();
            let value = slot.1.as_ref()?;
            Some((
                u64::from(slot.0) << 32 | u64::from(index),
                Arc::clone(value),
            ))
        })
    }

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.occupied.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_cover_the_chunks_without_gaps() {
        let mut expected = (0, 0);
        for index in 0..10_000u32 {
            assert_eq!(Slots::<()>::place(index), expected, "index {index}");
            expected.1 += 1;
            if expected.1 as u64 == FIRST << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(Slots::<()>::place(u32::MAX).0 < CHUNKS);
    }

    #[test]
    fn an_id_is_never_used_twice() {
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
    fn going_through_it_finds_what_is_there() {
        let slots = Slots::starting_at(1);
        let ids: Vec<u64> = (0..200)
            .map(|_| *slots.insert_with(|id| id).expect("room"))
            .collect();
        for id in ids.iter().step_by(3) {
            slots.remove(*id);
        }
        let left: Vec<u64> = slots
            .iter()
            .map(|(id, value)| {
                assert_eq!(id, *value);
                id
            })
            .collect();
        let kept = ids.iter().enumerate().filter(|(at, _)| at % 3 != 0);
        assert_eq!(left, kept.map(|(_, id)| *id).collect::<Vec<_>>());
    }

    #[test]
    fn values_go_on_under_their_ids_in_another_table() {
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
            assert_eq!(new >> 32, 6, "an id that nobody has seen");
        }
        assert!(ids.iter().any(|id| *id as u32 == 699), "gaps are used");
        assert!(ids.iter().all(|id| *id as u32 > 0));
        assert_eq!(slots.generation_max(), 6);
        assert!(!slots.settle(GENERATION_MAX - 1));
    }

    #[test]
    fn ids_from_nowhere_find_nothing() {
        let slots = Slots::starting_at(1);
        slots.insert_with(|_| ()).expect("room");
        for id in [0, 2, 1 << 32 | 1, u64::MAX, u64::from(u32::MAX)] {
            assert!(slots.get(id).is_none(), "{id:#x}");
        }
    }
}

//! The requests in flight of a split virtqueue, as in the vhost-user specification, "Inflight I/O tracking".
//!
//! | bytes | what |
//! |---|---|
//! | 0 | features, 0 |
//! | 8 | version, 1 once the queue was begun with |
//! | 10 | how many descriptors the queue has |
//! | 12 | the descriptor that was given back last |
//! | 14 | the used index after that |
//! | 16 | for each descriptor, 16 bytes: 1 when it is in flight; at 6 which was given back before it; at 8 when it was taken, as a number that grows |
//!
//! **Consistent between any two stores.** Taking a request stores its number, then its in-flight flag.
//! Returning one stores, in this order: its head as the last one; the used ring's index; its in-flight flag;
//! the used index of this table. So if this table's index is one behind the ring's, the last head was returned
//! whatever its flag says; if both are equal, the flags are right. A request that was taken is in flight or
//! was returned, so the next available index is the used index plus the number in flight.
//!
//! A front end's own table is untrusted. It only decides which of the queue's descriptors are replayed.

use super::words::Words;
use std::sync::Arc;
use thrufs_sys::shared_memory::SharedMapping;

const VERSION: u16 = 1;
const VERSION_AT: usize = 8;
const SIZE_AT: usize = 10;
const LAST_AT: usize = 12;
const USED_AT: usize = 14;
const HEAD_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;
/// In the first eight bytes of an entry.
const IN_FLIGHT: u64 = 1;

#[derive(Clone, Debug)]
pub(crate) struct Inflight {
    words: Words,
    size: u16,
    next_number: u64,
}

impl Inflight {
    /// Bytes of the table of a queue of `size` descriptors.
    pub(crate) const fn bytes(size: usize) -> usize {
        (HEAD_BYTES + ENTRY_BYTES * size).next_multiple_of(64)
    }

    /// The table at `at`; `None` without room or when misaligned.
    pub(crate) fn new(mapping: Arc<SharedMapping>, at: usize, size: u16) -> Option<Inflight> {
        let end = at.checked_add(HEAD_BYTES + ENTRY_BYTES * usize::from(size))?;
        if end > mapping.len() || !mapping.is_aligned(at, 8) {
            return None;
        }
        Some(Inflight {
            words: Words::new(mapping, at),
            size,
            next_number: 1,
        })
    }

    /// The same table for a queue of `size` descriptors, if it has as many.
    pub(crate) fn of_size(&self, size: u16) -> Option<Inflight> {
        (size <= self.size).then(|| Inflight {
            size,
            ..self.clone()
        })
    }

    fn set(&self, head: u16, value: u64) {
        self.words.store(entry(head), value);
    }

    /// When `head` was taken, if it is in flight: see the table.
    pub(crate) fn number(&self, head: u16) -> u64 {
        self.words.load(entry(head) + 8)
    }

    /// Whether a worker has begun with a queue of this size.
    pub(crate) fn was_begun(&self) -> bool {
        self.words.load_u16(VERSION_AT) == VERSION && self.words.load_u16(SIZE_AT) == self.size
    }

    /// Begins with a queue of which only `heads` are in flight.
    pub(crate) fn begin(&mut self, used: u16, heads: impl IntoIterator<Item = u16>) {
        self.go_on_counting();
        // Invalid until all entries are written.
        self.words.store_u16(VERSION_AT, 0);
        (0..self.size).for_each(|head| self.set(head, 0));
        self.words.store_u16(SIZE_AT, self.size);
        self.words.store_u16(USED_AT, used);
        for head in heads {
            self.take(head);
        }
        self.words.store_u16(VERSION_AT, VERSION);
    }

    /// The heads that the last worker left in flight, in the order in which they were taken, with their
    /// numbers; `used` is the used ring's index. `None` when the table is of another queue.
    pub(crate) fn recover(&mut self, used: u16) -> Option<Vec<(u16, u64)>> {
        let behind = used.wrapping_sub(self.words.load_u16(USED_AT));
        if !self.was_begun() || behind > 1 {
            return None;
        }
        if behind == 1 {
            let last = self.words.load_u16(LAST_AT);
            if last < self.size {
                self.set(last, 0);
            }
            self.words.store_u16(USED_AT, used);
        }
        let mut heads: Vec<(u16, u64)> = (0..self.size)
            .filter(|&head| self.words.load(entry(head)) & 0xff == IN_FLIGHT)
            .map(|head| (head, self.number(head)))
            .collect();
        heads.sort_by_key(|&(_, number)| number);
        self.go_on_counting();
        Some(heads)
    }

    /// Numbers must be unique: a record under a reused number would be taken for another request's.
    fn go_on_counting(&mut self) {
        let last = (0..self.size).map(|head| self.number(head)).max();
        self.next_number = last.unwrap_or(0).wrapping_add(1);
    }

    /// Records that `head` was taken. Returns its number.
    pub(crate) fn take(&mut self, head: u16) -> u64 {
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        self.words.store(entry(head) + 8, number);
        self.set(head, IN_FLIGHT);
        number
    }

    pub(crate) fn begin_to_give_back(&self, head: u16) {
        self.words.store_u16(LAST_AT, head);
    }

    /// Records that it was returned; `used` is the new used index.
    pub(crate) fn gave_back(&self, head: u16, used: u16) {
        self.set(head, 0);
        self.words.store_u16(USED_AT, used);
    }
}

fn entry(head: u16) -> usize {
    HEAD_BYTES + usize::from(head) * ENTRY_BYTES
}

//! How far a request that is in flight has come: 24 bytes for each descriptor.
//!
//! The first word says which of the requests that the descriptor has been used for it is about (the
//! number under which that was taken), the phase, and the opcode or the length of the answer. One store tells all
//! three, and what belonged to an earlier request needs no clearing. The other two words hold what was
//! noted at the beginning ([`Begun`]).

use super::lives;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs::Begun;
use thrufs_sys::shared_memory::SharedMapping;

/// The bits of the number that are kept, and where.
const NUMBER_BITS: u32 = 30;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
const PHASE_SHIFT: u32 = 32;
const NUMBER_SHIFT: u32 = 34;
const BEGUN: u64 = 1;
const ANSWERED: u64 = 2;

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing is known. If it was carried out, once more is harmless.
    Taken,
    /// It was begun. It is of this kind.
    Begun(u32, Begun),
    /// The answer, of this length, is in the guest's memory.
    Answered(u32),
}

/// The words of a queue. Clones are the same memory.
#[derive(Clone, Debug)]
pub(crate) struct Intent {
    mapping: Arc<SharedMapping>,
    at: usize,
}

impl Intent {
    pub(crate) const BYTES: usize = 24;

    pub(super) fn new(mapping: Arc<SharedMapping>, at: usize) -> Intent {
        Intent { mapping, at }
    }

    fn place(&self, head: u16) -> usize {
        self.at + usize::from(head) * Intent::BYTES
    }

    fn store(&self, at: usize, value: u64) {
        if !lives() {
            return;
        }
        let stored = self.mapping.store_u64(at, value, Ordering::Release);
        debug_assert!(stored.is_ok(), "outside the memory");
    }

    fn load(&self, at: usize) -> u64 {
        self.mapping.load_u64(at, Ordering::Acquire).unwrap_or(0)
    }

    fn tell(&self, head: u16, number: u64, phase: u64, length: u32) {
        let number = (number & NUMBER_MASK) << NUMBER_SHIFT;
        let word = number | phase << PHASE_SHIFT | u64::from(length);
        self.store(self.place(head), word);
    }

    /// The request, which is of the kind `opcode`, is about to be carried out.
    pub(crate) fn begin(&self, head: u16, number: u64, opcode: u32, begun: Begun) {
        let at = self.place(head);
        self.store(at + 8, begun.nanoseconds);
        self.store(at + 16, begun.before);
        self.tell(head, number, BEGUN, opcode);
    }

    /// Its answer is in the guest's memory.
    pub(crate) fn answer(&self, head: u16, number: u64, length: u32) {
        self.tell(head, number, ANSWERED, length);
    }

    /// How far the request has come that was taken as `number`.
    pub(crate) fn phase(&self, head: u16, number: u64) -> Phase {
        let at = self.place(head);
        let word = self.load(at);
        if word >> NUMBER_SHIFT != number & NUMBER_MASK {
            return Phase::Taken;
        }
        match word >> PHASE_SHIFT & 3 {
            BEGUN => {
                let begun = Begun {
                    nanoseconds: self.load(at + 8),
                    before: self.load(at + 16),
                };
                Phase::Begun(word as u32, begun)
            }
            ANSWERED => Phase::Answered(word as u32),
            _ => Phase::Taken,
        }
    }
}

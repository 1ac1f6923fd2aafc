//! The progress of a request in flight: 24 bytes per descriptor.
//!
//! The first word has the number under which the request was taken, the phase, and the opcode or the length of
//! the reply. A single store writes all three, and a record of an earlier request needs no clearing. The other
//! two words hold [`Begun`].

use super::words::Words;
use std::sync::Arc;
use thrufs::Begun;
use thrufs_sys::shared_memory::SharedMapping;

/// Bits of the number in the first word.
const NUMBER_BITS: u32 = 30;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
const PHASE_SHIFT: u32 = 32;
const NUMBER_SHIFT: u32 = 34;
const BEGUN: u64 = 1;
const ANSWERED: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Unknown. If it was executed, replaying it is harmless.
    Taken,
    /// Execution has begun, of this opcode.
    Begun(u32, Begun),
    /// A reply of this length is in the guest's memory.
    Answered(u32),
}

/// The words of a queue. Clones share the memory.
#[derive(Clone, Debug)]
pub(crate) struct Intent(Words);

impl Intent {
    pub(crate) const BYTES: usize = 24;

    pub(super) fn new(mapping: Arc<SharedMapping>, at: usize) -> Intent {
        Intent(Words::new(mapping, at))
    }

    fn tell(&self, head: u16, number: u64, phase: u64, length: u32) {
        let number = (number & NUMBER_MASK) << NUMBER_SHIFT;
        let word = number | phase << PHASE_SHIFT | u64::from(length);
        self.0.store(place(head), word);
    }

    pub(crate) fn begin(&self, head: u16, number: u64, opcode: u32, begun: Begun) {
        let at = place(head);
        self.0.store(at + 8, begun.nanoseconds);
        self.0.store(at + 16, begun.before);
        self.tell(head, number, BEGUN, opcode);
    }

    pub(crate) fn answer(&self, head: u16, number: u64, length: u32) {
        self.tell(head, number, ANSWERED, length);
    }

    /// The progress of the request that was taken as `number`.
    pub(crate) fn phase(&self, head: u16, number: u64) -> Phase {
        let at = place(head);
        let word = self.0.load(at);
        if word >> NUMBER_SHIFT != number & NUMBER_MASK {
            return Phase::Taken;
        }
        match word >> PHASE_SHIFT & 3 {
            BEGUN => {
                let begun = Begun {
                    nanoseconds: self.0.load(at + 8),
                    before: self.0.load(at + 16),
                };
                Phase::Begun(word as u32, begun)
            }
            ANSWERED => Phase::Answered(word as u32),
            _ => Phase::Taken,
        }
    }
}

fn place(head: u16) -> usize {
    usize::from(head) * Intent::BYTES
}

//! What a queue is served with: its ring, memory for its requests, and which of them are carried out
//! elsewhere. One thread has it in hand at a time.

use crate::post::Returned;
use crate::queue::{Broken, Ring};
use crate::slot::Slot;
use thrufs::Wait;

/// Slots that a queue keeps for further requests.
pub(crate) const SLOTS_KEPT: usize = 16;

/// Requests and replies of so many bytes are told of at once.
pub(crate) const LARGE_BYTES: usize = 32 << 10;

/// A request that is carried out elsewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Away {
    pub(crate) head: u16,
    pub(crate) wait: Wait,
    /// The run of the queue in which it was taken.
    pub(crate) run: u64,
}

impl Away {
    pub(crate) fn head(&self) -> u16 {
        self.head
    }

    /// Whether it waits for a lock, and may wait for it again.
    pub(crate) fn waits_for_lock(&self) -> bool {
        self.wait.is_for_lock()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) ring: Ring,
    pub(crate) free: Vec<Slot>,
    pub(crate) away: Vec<Away>,
    /// Memory waits to be given back.
    pub(crate) is_large: bool,
    /// Nothing of the queue makes sense any more: its requests are not given back.
    pub(crate) is_broken: bool,
}

impl Desk {
    pub(crate) fn new(ring: Ring, away: Vec<Away>) -> Desk {
        Desk {
            ring,
            free: Vec::with_capacity(SLOTS_KEPT),
            away,
            is_large: false,
            is_broken: false,
        }
    }

    /// Memory for the request that was taken last, if there is any.
    pub(crate) fn slot(&mut self, run: u64, number: u64) -> Option<Slot> {
        let regions = self.ring.regions();
        let mut slot = self.free.pop().or_else(|| {
            let slot = Slot::new(regions);
            slot.inspect_err(|error| tracing::warn!(%error, "no memory for a guest's request"))
                .ok()
        })?;
        slot.prepare(run, regions);
        slot.note_by(self.ring.tracker(), number);
        Some(slot)
    }

    /// Gives a request back to the guest, of whose reply `length` bytes were written.
    ///
    /// # Errors
    ///
    /// When the queue is broken.
    pub(crate) fn finish(&mut self, returned: Returned) -> Result<(), Broken> {
        let Returned { slot, length } = returned;
        self.note_written(&slot);
        slot.answered(length);
        let completed = self.ring.complete(slot.head(), length);
        self.keep(slot);
        completed
    }

    /// Takes a request back that was carried out elsewhere, and gives it to the guest.
    ///
    /// # Errors
    ///
    /// When the queue is broken.
    pub(crate) fn take_back(&mut self, returned: Returned) -> Result<(), Broken> {
        if !self.is_back(&returned.slot) {
            // Of a guest that has begun anew since, or to be carried out again.
            self.note_written(&returned.slot);
            self.keep(returned.slot);
            return Ok(());
        }
        if self.is_broken {
            self.note_written(&returned.slot);
            return Ok(());
        }
        self.finish(returned)
    }

    /// Whether requests are away that come back by themselves.
    pub(crate) fn waits_for_others(&self) -> bool {
        self.away.iter().any(|away| !away.waits_for_lock())
    }

    /// Takes it off the list of what is away. False when it was not on it.
    pub(crate) fn is_back(&mut self, slot: &Slot) -> bool {
        let is_it = |away: &Away| away.head == slot.head() && away.run == slot.run;
        // Those that come back soon were added last.
        let position = self.away.iter().rposition(is_it);
        position.map(|at| self.away.swap_remove(at)).is_some()
    }

    /// Notes what was written for a request, whoever carried it out.
    fn note_written(&self, slot: &Slot) {
        if let Some(log) = self.ring.log() {
            slot.mark_written(log);
        }
    }

    /// Keeps its memory for another, if that is still read with the same regions.
    fn keep(&mut self, slot: Slot) {
        if self.free.len() < SLOTS_KEPT && slot.is_of(self.ring.regions()) {
            self.is_large |= slot.is_large;
            self.free.push(slot);
        }
    }
}

//! The state of a queue: its ring, buffers for requests, and the list of requests that other threads
//! execute. One thread has it at a time.

use crate::queue::{Broken, VirtqueueRing};
use crate::slot::{Away, Slot};

pub(crate) const SLOTS_KEPT: usize = 16;

/// The guest is notified at once of a request and reply of so many bytes.
pub(crate) const LARGE_BYTES: usize = 32 << 10;

/// The default is a placeholder without memory.
#[derive(Debug, Default)]
pub(crate) struct QueueState {
    pub(crate) ring: VirtqueueRing,
    pub(crate) free: Vec<Slot>,
    pub(crate) away: Vec<Away>,
    /// Free slots have memory to be released.
    pub(crate) is_large: bool,
    /// The queue is broken: its requests are not returned.
    pub(crate) is_broken: bool,
}

impl QueueState {
    pub(crate) fn new(ring: VirtqueueRing, away: Vec<Away>) -> QueueState {
        QueueState {
            ring,
            free: Vec::with_capacity(SLOTS_KEPT),
            away,
            is_large: false,
            is_broken: false,
        }
    }

    /// A slot for the request that was taken as `head`; `None` without memory.
    pub(crate) fn slot(&mut self, run: u64, head: u16) -> Option<Slot> {
        let mut slot = self.free.pop().or_else(|| {
            let slot = Slot::new(self.ring.regions());
            slot.inspect_err(|error| tracing::warn!(%error, "no memory for a guest's request"))
                .ok()
        })?;
        slot.prepare(run, head, &self.ring);
        Some(slot)
    }

    /// Returns a request to the guest, with its reply.
    pub(crate) fn finish(&mut self, slot: Slot) -> Result<(), Broken> {
        self.note_written(&slot);
        slot.answered();
        let completed = self.ring.complete(slot.head, slot.length);
        self.keep(slot);
        completed
    }

    /// Returns a request to the guest that another thread executed.
    pub(crate) fn take_back(&mut self, slot: Slot) -> Result<(), Broken> {
        if self.is_back(&slot) && !self.is_broken {
            return self.finish(slot);
        }
        // Taken before a reset of the guest, to be replayed, or of a broken queue.
        self.note_written(&slot);
        self.keep(slot);
        Ok(())
    }

    /// Whether requests are away that end by themselves.
    pub(crate) fn waits_for_others(&self) -> bool {
        self.away.iter().any(|away| away.wait.ends_by_itself())
    }

    /// Removes it from the list of requests away. False when it was not listed.
    pub(crate) fn is_back(&mut self, slot: &Slot) -> bool {
        let is_it = |away: &Away| away.head == slot.head && away.run == slot.run;
        // The latest usually return first.
        let position = self.away.iter().rposition(is_it);
        position.map(|at| self.away.swap_remove(at)).is_some()
    }

    fn note_written(&self, slot: &Slot) {
        if let Some(log) = self.ring.log() {
            slot.mark_written(log);
        }
    }

    /// Keeps the slot for another request, unless the memory regions have changed.
    fn keep(&mut self, slot: Slot) {
        if self.free.len() < SLOTS_KEPT && slot.is_of(self.ring.regions()) {
            self.is_large |= slot.is_large;
            self.free.push(slot);
        }
    }
}

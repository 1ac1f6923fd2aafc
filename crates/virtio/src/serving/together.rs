//! Serving a leased queue together with its helpers ([`crate::queue_helpers`]).

use super::Serving;
use crate::carry_out::{Carried, Sleeping, carry_out};
use crate::frame::Kind;
use crate::queue::Broken;
use crate::queue_helpers::{Lease, Next};
use crate::session::{MakeFileSystem, SessionOf};
use crate::slot::Slot;
use crate::stall_monitor::Batch;
use thrufs::Wait;

impl<M: MakeFileSystem> Serving<M> {
    /// Whether the requests behind `slot` justify a lease.
    pub(super) fn needs_helpers(&mut self, slot: &Slot) -> bool {
        let ring = &mut self.start.queue.ring;
        let waiting = ring.waiting();
        let sees_more = || ring.has_available() == Ok(true);
        self.session.is_some() && self.helpers.are_worth_waking(slot, waiting, sees_more)
    }

    /// Executes `slot` and, with helpers, all that follows, until the ring is empty or a message comes.
    pub(super) fn serve_together(&mut self, slot: Slot, batch: &mut Batch) -> Result<(), Broken> {
        let Some(session) = &self.session else {
            return self.carry_out(slot);
        };
        self.start.queue.away.push(slot.away(Wait::Io));
        let (run, call) = (self.start.run, self.start.wiring.call.as_ref());
        let lease = self
            .helpers
            .begin_lease(&mut self.start.queue, run, session, call);
        self.helpers.wake_one();
        let left = self.work_together(&lease, slot, batch);
        drop(lease);
        let ended = self.helpers.end_lease(&mut self.start.queue);
        match left {
            None => ended,
            Some(slot) if ended.is_ok() => self.carry_out_undone(slot),
            Some(slot) => {
                // No longer away, though it is not returned to the guest.
                self.start.queue.is_back(&slot);
                ended
            }
        }
    }

    /// Returns the request that this thread still has: to be executed after the lease, or one that could
    /// not be returned because the queue is broken.
    fn work_together(
        &mut self,
        lease: &Lease<SessionOf<M>>,
        mut slot: Slot,
        batch: &mut Batch,
    ) -> Option<Slot> {
        loop {
            if matches!(slot.kind, Kind::Init | Kind::Destroy) {
                return Some(slot);
            }
            let mut finished = self.carry_out_together(lease, slot);
            slot = loop {
                match self.helpers.exchange(lease, finished.take()) {
                    Next::Request(slot) => break slot,
                    Next::Nothing if self.spins_for_more_leased(lease) => {}
                    Next::Nothing => return None,
                    Next::LeaseEnded(unreturned) => return unreturned,
                }
            };
            batch.count(&slot);
        }
    }

    fn carry_out_together(&self, lease: &Lease<SessionOf<M>>, slot: Slot) -> Option<Slot> {
        let mailbox = &self.start.mailbox;
        match carry_out(&lease.session, mailbox, &self.shared.metrics, slot) {
            Carried::Out(slot) => Some(slot),
            Carried::Asleep(sleeping) => self.send_away(sleeping),
            Carried::Later(late) => {
                late.keep();
                None
            }
        }
    }

    fn send_away(&self, sleeping: Sleeping<M::FileSystem>) -> Option<Slot> {
        self.helpers.note_wait(sleeping.slot.head, sleeping.wait);
        let refused = self.shared.send_away(sleeping)?;
        refused.carry_out_here()
    }

    /// Spins for the next request. False when none came, or a message did.
    fn spins_for_more_leased(&mut self, lease: &Lease<SessionOf<M>>) -> bool {
        let (mailbox, helpers) = (&self.start.mailbox, &self.helpers);
        self.patience.note_request();
        let sees_more = self
            .patience
            .spin(|| mailbox.has_messages() || helpers.sees_more(lease));
        sees_more && !mailbox.has_messages()
    }
}

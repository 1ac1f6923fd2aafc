//! Serving together with further threads, while there is enough to do for them ([`crate::queue_helpers`]).

use super::{Carried, Serving, Sleeping, carry_out};
use crate::frame::Kind;
use crate::mailbox::Returned;
use crate::queue::Broken;
use crate::queue_helpers::{Found, Lease, Next};
use crate::queue_state::Away;
use crate::session::MakeFileSystem;
use crate::slot::Slot;
use crate::stall_monitor::Batch;
use thrufs::Wait;

/// What is in hand when the queue is taken away again.
enum Left {
    Nothing,
    /// What can only be carried out afterwards.
    Undone(Slot, Kind),
    /// The queue is broken.
    Unreturned(Returned),
}

impl<M: MakeFileSystem> Serving<M> {
    /// Whether more waits than this thread should do alone, once it has carried out `slot`.
    pub(super) fn needs_helpers(&mut self, slot: &Slot) -> bool {
        let ring = &mut self.start.queue.ring;
        let waiting = ring.waiting();
        let sees_more = || ring.has_available() == Ok(true);
        self.session.is_some() && self.helpers.are_worth_waking(slot, waiting, sees_more)
    }

    /// Carries out `slot`, and with the helpers all that comes until there is nothing more, or news.
    pub(super) fn serve_together(
        &mut self,
        slot: Slot,
        kind: Kind,
        batch: &mut Batch,
    ) -> Result<(), Broken> {
        let Some(session) = &self.session else {
            return self.carry_out_slot(slot, kind).map(drop);
        };
        self.start.queue.away.push(Away {
            head: slot.head(),
            wait: Wait::Io,
            run: self.start.run,
        });
        let (run, call) = (self.start.run, self.start.wiring.call.as_ref());
        let lease = self
            .helpers
            .begin_lease(&mut self.start.queue, run, session, call);
        self.helpers.wake_one();
        let left = self.work_together(&lease, (slot, kind), batch);
        drop(lease);
        let ended = self.helpers.end_lease(&mut self.start.queue);
        match left {
            Left::Nothing => ended,
            Left::Undone(slot, kind) if ended.is_ok() => self.carry_out_undone(slot, kind),
            Left::Undone(slot, _) | Left::Unreturned(Returned { slot, .. }) => {
                // It is not away any more, though the guest will not get it.
                self.start.queue.is_back(&slot);
                ended
            }
        }
    }

    fn work_together(
        &mut self,
        lease: &Lease<M::FileSystem>,
        first: (Slot, Kind),
        batch: &mut Batch,
    ) -> Left {
        let mut next = Some(first);
        let mut finished = None;
        loop {
            if let Some((slot, kind)) = next.take() {
                if matches!(kind, Kind::Init | Kind::Destroy) {
                    return Left::Undone(slot, kind);
                }
                finished = self.carry_out_together(lease, slot);
            }
            match self.helpers.exchange(lease, finished.take()) {
                Next::Request(taken) => match self.helpers.read(lease, taken) {
                    Found::Request(slot, kind) => {
                        batch.count(&slot);
                        next = Some((slot, kind));
                    }
                    Found::Malformed(returned) => finished = Some(returned),
                },
                Next::Nothing if self.stays_together(lease) => {}
                Next::Nothing | Next::LeaseEnded(None) => return Left::Nothing,
                Next::LeaseEnded(Some(unreturned)) => return Left::Unreturned(unreturned),
            }
        }
    }

    /// Returns what has to be given back.
    fn carry_out_together(&self, lease: &Lease<M::FileSystem>, slot: Slot) -> Option<Returned> {
        let mailbox = &self.start.mailbox;
        match carry_out(lease.session(), mailbox, &self.shared.metrics, slot) {
            Carried::Out(returned) => Some(returned),
            Carried::Asleep(sleeping) => self.send_away(sleeping),
        }
    }

    fn send_away(&self, sleeping: Sleeping<M::FileSystem>) -> Option<Returned> {
        self.helpers.note_wait(sleeping.slot.head(), sleeping.wait);
        let refused = self.shared.pool.take(sleeping).err()?;
        Some(self.carry_out_here(refused))
    }

    /// Looks out for more. False when there is none, or there is news.
    fn stays_together(&mut self, lease: &Lease<M::FileSystem>) -> bool {
        let (mailbox, helpers) = (&self.start.mailbox, &self.helpers);
        self.patience.note_request();
        let sees_more = self.patience.is_worth_it()
            && self
                .patience
                .look_out(|| mailbox.has_messages() || helpers.sees_more(lease));
        sees_more && !mailbox.has_messages()
    }
}

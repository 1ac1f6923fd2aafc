//! One helper thread: parked until woken, then serving until the queue is empty.

use super::{HelperSlot, Lease, Next, QueueHelpers};
use crate::carry_out::{Carried, carry_out};
use crate::frame::Kind;
use crate::patience::Patience;
use crate::session::{MakeFileSystem, SessionOf};
use crate::slot::Slot;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl<M: MakeFileSystem> QueueHelpers<M> {
    pub(crate) fn wake_one(self: &Arc<Self>) {
        // A helper that is about to park is missed; the next request tries again.
        let idle = |(_, helper_slot): &(usize, &HelperSlot)| {
            !helper_slot.is_taken.load(Ordering::Relaxed)
                || helper_slot.asleep.load(Ordering::Relaxed)
        };
        let Some((number, helper_slot)) = self.helper_slots.iter().enumerate().find(idle) else {
            return;
        };
        if !self.has_room() {
            return;
        }
        if !helper_slot.is_taken.swap(true, Ordering::Relaxed) {
            self.start(number);
        } else if helper_slot.asleep.swap(false, Ordering::SeqCst) {
            helper_slot.wake();
        }
    }

    fn start(self: &Arc<Self>, number: usize) {
        let (helpers, count) = (Arc::clone(self), self.threads.one_more());
        let started = std::thread::Builder::new()
            .name("thrufs-helper".to_owned())
            .spawn(move || {
                let _count = count;
                let _serving = helpers.shared.threads.begin();
                helpers.live(&helpers.helper_slots[number]);
            });
        if let Err(error) = started {
            tracing::debug!(%error, "no further thread for a queue");
        }
    }

    fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    fn live(self: &Arc<Self>, helper_slot: &HelperSlot) {
        let _ = helper_slot.thread.set(std::thread::current());
        let mut patience = Patience::new(self.shared.config.spin);
        while !self.is_ending() {
            let awake = self.shared.watch.begin_helper();
            self.awake.fetch_add(1, Ordering::Relaxed);
            self.work(&mut patience);
            self.awake.fetch_sub(1, Ordering::Relaxed);
            drop(awake);
            helper_slot.asleep.store(true, Ordering::SeqCst);
            while helper_slot.asleep.load(Ordering::SeqCst) && !self.is_ending() {
                std::thread::park();
            }
        }
    }

    fn work(self: &Arc<Self>, patience: &mut Patience) {
        while let Some(lease) = self.join() {
            // The waking thread may have taken the request itself; another follows soon.
            patience.note_request();
            let mut finished = None;
            let unreturned = loop {
                match self.exchange(&lease, finished.take()) {
                    Next::Request(slot) => {
                        patience.note_request();
                        finished = self.carry_out(&lease, slot);
                    }
                    Next::Nothing if self.spins_for_more(&lease, patience) => {}
                    Next::Nothing => return,
                    Next::LeaseEnded(unreturned) => break unreturned,
                }
            };
            // First the lease: once the request is returned, the queue's thread may wait for the session's end.
            drop(lease);
            if let Some(slot) = unreturned {
                self.mailbox.give_back(slot);
            }
        }
    }

    fn join(&self) -> Option<Lease<SessionOf<M>>> {
        self.leased.lock().lease.clone()
    }

    /// Spins for the next request. False when none came.
    fn spins_for_more(&self, lease: &Lease<SessionOf<M>>, patience: &mut Patience) -> bool {
        patience.spin(|| {
            self.lease_number.load(Ordering::Relaxed) != lease.number
                || self.sees_more(lease) && !self.mailbox.has_messages()
        })
    }

    /// Executes a request to its end. `None` when the queue's thread returns it.
    fn carry_out(&self, lease: &Lease<SessionOf<M>>, slot: Slot) -> Option<Slot> {
        if matches!(slot.kind, Kind::Init | Kind::Destroy) {
            self.mailbox.hand_over(slot);
            return None;
        }
        match carry_out(&lease.session, &self.mailbox, &self.shared.metrics, slot) {
            Carried::Out(slot) => Some(slot),
            Carried::Asleep(sleeping) if !sleeping.wait.ends_by_itself() => {
                self.mailbox.hand_over(sleeping.slot);
                None
            }
            Carried::Asleep(sleeping) => sleeping.carry_out(),
            Carried::Later(late) => {
                late.keep();
                None
            }
        }
    }

    /// Ends the helpers. A helper busy beyond `deadline` ends with its request.
    pub(crate) fn end(&self, deadline: Instant) {
        self.begin_to_end();
        self.threads.wait_for_none(deadline);
    }

    pub(crate) fn begin_to_end(&self) {
        self.ending.store(true, Ordering::SeqCst);
        self.helper_slots.iter().for_each(HelperSlot::wake);
    }
}

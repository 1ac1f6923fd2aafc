//! The thread of a queue: takes requests, executes them where it can, and notifies the guest.
//!
//! It sleeps in one epoll_wait(2), for the guest's kick and its [`Mailbox`], both edge-triggered, so that
//! neither eventfd has to be read. It executes all available requests in a batch. A polling guest sees each
//! reply at once; a sleeping one is notified when the ring is empty, after some replies, or at once after a
//! large one. Under load it leases the queue to helpers for a while ([`crate::queue_helpers`]).

mod again;
mod together;

pub(crate) use again::in_order;

use crate::carry_out::{Carried, carry_out};
use crate::frame::Kind;
use crate::journal::Again;
use crate::mailbox::{Mailbox, Wiring, signal};
use crate::memory::Regions;
use crate::patience::Patience;
use crate::queue::Broken;
use crate::queue_helpers::{NOTIFY_EVERY, QueueHelpers};
use crate::queue_state::{LARGE_BYTES, QueueState};
use crate::session::{MakeFileSystem, SessionOf};
use crate::shared::Shared;
use crate::slot::{Away, Slot};
use crate::stall_monitor::Batch;
use rustix::event::{Timespec, epoll};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The queue for FORGETs, which have no reply.
const HIGH_PRIORITY: usize = 0;

/// How long FORGETs gather: a kick for each would cost the guest more than the FORGETs.
const FORGET_INTERVAL: Duration = Duration::from_millis(1);

/// How long an idle queue keeps the memory of a long reply.
const KEEP_MEMORY: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

#[derive(Debug)]
pub(crate) struct Finished {
    /// The index from which the next thread continues.
    pub(crate) next_available: u16,
    /// Requests still away: lock waits, which have no bound.
    pub(crate) away: Vec<Away>,
    /// Still to be replayed.
    pub(crate) again: Vec<Again>,
}

#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) number: usize,
    /// Counts the threads that this queue has had.
    pub(crate) run: u64,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) wiring: Wiring,
    /// With the requests that were away when the queue was stopped.
    pub(crate) queue: QueueState,
    /// To be replayed, in this order.
    pub(crate) again: Vec<Again>,
}

pub(crate) struct Serving<M: MakeFileSystem> {
    shared: Arc<Shared<M>>,
    start: Start,
    epoll: OwnedFd,
    session: Option<SessionOf<M>>,
    generation: u64,
    patience: Patience,
    stops: bool,
    helpers: Arc<QueueHelpers<M>>,
}

impl<M: MakeFileSystem> Serving<M> {
    /// Allocates everything that can fail.
    pub(crate) fn new(shared: Arc<Shared<M>>, start: Start) -> rustix::io::Result<Serving<M>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&epoll, start.mailbox.eventfd(), data, flags)?;
        epoll::add(&epoll, &start.wiring.kick, data, flags)?;
        let is_for_requests = start.number != HIGH_PRIORITY;
        let helpers_max = if is_for_requests {
            shared.config.queue_helpers_max
        } else {
            Some(0)
        };
        Ok(Serving {
            generation: shared.sessions.generation(),
            session: shared.sessions.current(),
            patience: Patience::new(shared.config.spin),
            helpers: Arc::new(QueueHelpers::new(&shared, &start.mailbox, helpers_max)),
            shared,
            start,
            epoll,
            stops: false,
        })
    }

    /// Serves until the mailbox says stop.
    pub(crate) fn serve(mut self) -> Finished {
        let shared = Arc::clone(&self.shared);
        let _serving = shared.threads.begin();
        shared.watch.begin_queue(self.start.number);
        while !self.stops {
            let more = self.turn().unwrap_or_else(|broken| {
                self.give_up(broken);
                false
            });
            if !more && !self.stops {
                let keep = self.start.queue.is_large.then_some(KEEP_MEMORY);
                self.sleep(keep.as_ref());
            }
        }
        shared.watch.end_queue(self.start.number);
        self.wind_down();
        shared.watch.set_awake(self.start.number, false);
        Finished {
            next_available: self.start.queue.ring.next_available(),
            away: std::mem::take(&mut self.start.queue.away),
            again: std::mem::take(&mut self.start.again),
        }
    }

    /// Serves all available requests. True when more may be available already.
    fn turn(&mut self) -> Result<bool, Broken> {
        self.read_mailbox()?;
        if self.stops || self.start.queue.is_broken || !self.start.wiring.enabled {
            return Ok(false);
        }
        self.start.queue.ring.disable_kicks()?;
        self.carry_out_again()?;
        let mut batch = Batch::default();
        // Helpers are looked for once a turn, and a turn spins once.
        let (mut may_lease, mut has_spun) = (true, false);
        while self.start.queue.ring.has_available()? {
            // Checked after the guest's index: see `mailbox`.
            if self.start.mailbox.has_messages() {
                self.notify_guest()?;
                return Ok(true);
            }
            let Some(head) = self.start.queue.ring.take()? else {
                break;
            };
            let Some(slot) = self.read(head)? else {
                continue;
            };
            batch.count(&slot);
            has_spun = false;
            if may_lease && self.needs_helpers(&slot) {
                may_lease = self.helpers.has_helper();
                if may_lease {
                    self.serve_together(slot, &mut batch)?;
                    has_spun = true;
                    continue;
                }
            }
            let large = slot.bytes() >= LARGE_BYTES;
            self.carry_out(slot)?;
            if large || batch.requests.is_multiple_of(NOTIFY_EVERY) {
                self.notify_guest()?;
            }
        }
        self.notify_guest()?;
        if batch.requests > 0 && self.start.number == HIGH_PRIORITY {
            std::thread::sleep(FORGET_INTERVAL);
            return Ok(true);
        }
        Ok(self.spins_for_more(batch, has_spun) || self.start.queue.ring.enable_kicks()?)
    }

    /// Spins for more requests after `batch`. True when one or a message came.
    fn spins_for_more(&mut self, batch: Batch, has_spun: bool) -> bool {
        if batch.requests == 0 {
            return false;
        }
        self.shared.watch.note(self.start.number, batch);
        // A guest that waits for each reply has to be woken first, which takes longer than spinning lasts.
        if batch.requests == 1 || has_spun {
            return false;
        }
        self.patience.note_request();
        let (mailbox, ring) = (&self.start.mailbox, &mut self.start.queue.ring);
        self.patience
            .spin(|| mailbox.has_messages() || ring.has_available() != Ok(false))
    }

    /// Reads the request at the descriptor `head`; `None` when it was returned unexecuted because it is
    /// malformed or there is no memory for it.
    fn read(&mut self, head: u16) -> Result<Option<Slot>, Broken> {
        let Some(mut slot) = self.start.queue.slot(self.start.run, head) else {
            self.start.queue.ring.complete(head, 0)?;
            return Ok(None);
        };
        match slot.read(&self.start.queue.ring.chains()) {
            Ok(()) => Ok(Some(slot)),
            Err(fault) => {
                tracing::debug!(%fault, queue = self.start.number, "a guest's request is malformed");
                self.shared.metrics.count_malformed();
                self.start.queue.finish(slot)?;
                Ok(None)
            }
        }
    }

    fn carry_out(&mut self, mut slot: Slot) -> Result<(), Broken> {
        if slot.kind == Kind::Init {
            return self.carry_out_init(slot);
        }
        // Moved, not cloned: the reference count is shared by all queues.
        let Some(session) = self.session.take() else {
            slot.answer(&self.shared.null_dispatcher);
            return self.start.queue.finish(slot);
        };
        if slot.kind == Kind::Destroy {
            slot.answer(session.dispatcher());
            drop(session);
            self.end_session();
            return self.start.queue.finish(slot);
        }
        let dispatched = self.dispatch(&session, slot);
        self.session = Some(session);
        dispatched
    }

    fn dispatch(&mut self, session: &SessionOf<M>, slot: Slot) -> Result<(), Broken> {
        let sleeping = match carry_out(session, &self.start.mailbox, &self.shared.metrics, slot) {
            Carried::Out(slot) => return self.start.queue.finish(slot),
            Carried::Asleep(sleeping) => sleeping,
            Carried::Later(late) => {
                self.start.queue.away.push(late.away());
                late.keep();
                return Ok(());
            }
        };
        let away = sleeping.slot.away(sleeping.wait);
        match self.shared.send_away(sleeping) {
            None => self.start.queue.away.push(away),
            Some(refused) => match refused.carry_out_here() {
                Some(slot) => return self.start.queue.finish(slot),
                None => self.start.queue.away.push(away),
            },
        }
        Ok(())
    }

    fn notify_guest(&mut self) -> Result<(), Broken> {
        if self.start.queue.ring.needs_notification()?
            && let Some(call) = &self.start.wiring.call
        {
            signal(call.as_fd());
        }
        Ok(())
    }

    fn carry_out_init(&mut self, mut slot: Slot) -> Result<(), Broken> {
        // The previous session ends only without references.
        self.session = None;
        self.note_session(None);
        let Some(has_window) = self.empty_window() else {
            // The front end waits for the queue to stop, and so does not answer the window.
            self.start.again.push(Again::taken(slot.head));
            return Ok(());
        };
        self.begin_session(&mut slot, has_window);
        self.start.queue.finish(slot)
    }

    /// Ends the session, and unmaps its files from the window. Whether there is one for the next; `None` when the
    /// queue is to stop.
    fn empty_window(&self) -> Option<bool> {
        let Some(window) = &self.shared.window else {
            return Some(false);
        };
        self.shared.sessions.end();
        window.begin_session(|| self.start.mailbox.stops())
    }

    /// INIT: makes a session with a file system of its own.
    fn begin_session(&mut self, slot: &mut Slot, has_window: bool) {
        let sessions = &self.shared.sessions;
        let session = match sessions.make(has_window) {
            Ok(session) => session,
            Err(errno) => return slot.refuse(&self.shared.null_dispatcher, errno),
        };
        slot.answer(session.dispatcher());
        if session.start() {
            self.note_session(session.dispatcher().init_request().as_deref());
            sessions.install(&session);
            tracing::debug!(queue = self.start.number, "a guest begins a session");
        }
        self.look_at_session();
    }

    fn end_session(&mut self) {
        self.note_session(None);
        self.shared.sessions.end();
        if let Some(window) = &self.shared.window {
            window.end_session(|| self.start.mailbox.stops());
        }
        self.look_at_session();
        tracing::debug!(queue = self.start.number, "a guest has ended its session");
    }

    fn note_session(&self, init: Option<&[u8]>) {
        if let Some(journal) = &self.shared.journal {
            journal.set_session(init);
        }
    }

    fn look_at_session(&mut self) {
        self.generation = self.shared.sessions.generation();
        self.session = self.shared.sessions.current();
    }

    fn read_mailbox(&mut self) -> Result<(), Broken> {
        let Some(messages) = self.start.mailbox.collect() else {
            return Ok(());
        };
        self.stops = messages.stops;
        if self.generation != self.shared.sessions.generation() {
            self.look_at_session();
        }
        // All are taken off the books, whatever becomes of the first.
        let wiring = messages.wiring;
        let mut result = wiring.map_or(Ok(()), |wiring| self.rewire(wiring));
        for slot in messages.returned {
            let taken = self.start.queue.take_back(slot);
            result = result.and(taken);
        }
        for slot in messages.undone {
            let done = self.carry_out_undone(slot);
            result = result.and(done);
        }
        result?;
        self.notify_guest()
    }

    /// Executes a request that a helper took and did not begin.
    fn carry_out_undone(&mut self, slot: Slot) -> Result<(), Broken> {
        let is_back = self.start.queue.is_back(&slot);
        if !is_back || self.start.queue.is_broken {
            return Ok(());
        }
        if self.stops {
            self.start.again.push(Again::taken(slot.head));
            return Ok(());
        }
        self.carry_out(slot)
    }

    fn rewire(&mut self, wiring: Wiring) -> Result<(), Broken> {
        let before = std::mem::replace(&mut self.start.wiring, wiring);
        self.start.queue.ring.set_log(self.start.wiring.log.clone());
        // Applies from now on: this thread executes none, and it logs the writes of requests that return.
        self.start.wiring.in_force = None;
        let after = &self.start.wiring;
        if !Arc::ptr_eq(&before.kick, &after.kick) {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            let data = epoll::EventData::new_u64(0);
            // Fails when the descriptor number was reused.
            let _ = epoll::delete(&self.epoll, &before.kick);
            if let Err(error) = epoll::add(&self.epoll, &after.kick, data, flags) {
                tracing::warn!(%error, queue = self.start.number, "cannot wait for kicks");
            }
        }
        if let Some(call) = &after.call
            && before
                .call
                .as_ref()
                .is_none_or(|before| !Arc::ptr_eq(before, call))
        {
            // A notification may have gone to the old eventfd, which the guest no longer reads.
            signal(call.as_fd());
        }
        if !Arc::ptr_eq(&before.regions, &after.regions) {
            // Slots in use keep the regions that they were read with; free ones must not.
            self.start.queue.free.clear();
            let regions: Arc<Regions> = Arc::clone(&after.regions);
            self.start.queue.ring.set_regions(regions)?;
        }
        Ok(())
    }

    fn give_up(&mut self, broken: Broken) {
        if self.start.queue.is_broken {
            return;
        }
        self.start.queue.is_broken = true;
        self.shared.metrics.count_malformed();
        tracing::warn!(error = %broken, queue = self.start.number, "a guest's queue is broken");
        if let Some(error) = &self.start.wiring.error {
            signal(error.as_fd());
        }
    }

    /// Waits for the requests that are away, except lock waits.
    fn wind_down(&mut self) {
        let deadline = Instant::now() + self.shared.config.drain_timeout;
        while self.start.queue.waits_for_others() {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(timeout) = Timespec::try_from(left) else {
                break;
            };
            if left.is_zero() {
                break;
            }
            self.sleep(Some(&timeout));
            if let Err(broken) = self.read_mailbox() {
                self.give_up(broken);
            }
        }
        if let Err(broken) = self.notify_guest() {
            self.give_up(broken);
        }
        self.helpers.end(deadline);
    }

    /// Sleeps until a kick, a message or the timeout. After the timeout, releases memory of long replies.
    fn sleep(&mut self, timeout: Option<&Timespec>) {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 2];
        let (watch, number) = (&self.shared.watch, self.start.number);
        watch.set_awake(number, false);
        let waited = epoll::wait(&self.epoll, &mut events, timeout);
        watch.set_awake(number, true);
        let timed_out = waited.is_ok_and(|(events, _)| events.is_empty());
        if timed_out && self.start.queue.is_large {
            self.start.queue.is_large = false;
            self.start
                .queue
                .free
                .iter_mut()
                .for_each(Slot::release_memory);
        }
    }
}

impl<M: MakeFileSystem> Drop for Serving<M> {
    fn drop(&mut self) {
        // Also after a panic.
        self.helpers.begin_to_end();
    }
}

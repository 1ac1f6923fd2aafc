//! Helper threads for a queue with more requests than its own thread can serve.
//!
//! **Ownership.** The [`QueueState`] belongs to the queue's thread, which alone reads the mailbox and waits
//! for kicks. Under load it *leases* the state to the helpers: the state moves behind a lock that is held to
//! take a request or to return one, never while a request is read or executed. The lease ends when the ring
//! is empty or the mailbox has a message. A helper that still has a request returns it through the
//! [`Mailbox`], as the blocking pool does; the request is listed as away from the moment it is taken.
//!
//! **What helpers execute.** Everything but INIT, DESTROY and lock waits, which go back to the queue's thread
//! before they begin. Requests in flight together have no order. A helper may block: there are few, and the
//! queue's thread never waits for one.

mod helper;

use crate::mailbox::{Mailbox, signal};
use crate::queue::{AvailableIndex, Broken, ChainTable};
use crate::queue_state::{LARGE_BYTES, QueueState};
use crate::session::{MakeFileSystem, SessionOf};
use crate::shared::Shared;
use crate::slot::Slot;
use parking_lot::Mutex;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use thrufs::Wait;
use thrufs::serving::LiveCount;

/// The guest is notified after so many requests although more are pending, so that it works in parallel.
pub(crate) const NOTIFY_EVERY: u64 = 4;

/// Pending requests at which a helper is woken. A wake-up costs as much as one or two requests.
const WAKE_AT: u16 = 4;

/// Most helpers of a queue. More only contend for its lock.
const HELPERS_MAX: usize = 3;

/// What a thread needs to serve a leased queue, for requests of the session `S`.
#[derive(Clone)]
pub(crate) struct Lease<S> {
    number: u64,
    run: u64,
    pub(crate) session: S,
    chains: ChainTable,
    available_index: AvailableIndex,
    call: Option<Arc<OwnedFd>>,
}

struct LeasedQueue<S> {
    /// An empty one without a lease.
    queue: QueueState,
    lease: Option<Lease<S>>,
    leases: u64,
    unnotified: u64,
    /// Set by the thread that finds the fault. Nothing is taken or returned afterwards.
    broken: Option<Broken>,
}

struct Taken {
    slot: Slot,
    /// Pending requests behind it, as last read.
    waiting: u16,
}

pub(crate) enum Next {
    Request(Slot),
    /// The ring is empty, or the mailbox has a message to be read first.
    Nothing,
    /// The lease has ended. Holds the request that could not be returned.
    LeaseEnded(Option<Slot>),
}

/// The place of one helper, which starts when it is first needed.
#[derive(Debug, Default)]
struct HelperSlot {
    is_taken: AtomicBool,
    thread: OnceLock<Thread>,
    asleep: AtomicBool,
}

impl HelperSlot {
    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

pub(crate) struct QueueHelpers<M: MakeFileSystem> {
    shared: Arc<Shared<M>>,
    mailbox: Arc<Mailbox>,
    leased: Mutex<LeasedQueue<SessionOf<M>>>,
    /// The current lease; 0 without one.
    lease_number: AtomicU64,
    /// The available index up to which requests were taken.
    next: AtomicU16,
    helper_slots: Vec<HelperSlot>,
    awake: AtomicUsize,
    ending: AtomicBool,
    threads: Arc<LiveCount>,
}

impl<M: MakeFileSystem> QueueHelpers<M> {
    /// At most `size` helpers for the queue of `mailbox`; by default as many as there are CPUs for. A helper
    /// starts when it is first needed.
    pub(crate) fn new(
        shared: &Arc<Shared<M>>,
        mailbox: &Arc<Mailbox>,
        size: Option<usize>,
    ) -> QueueHelpers<M> {
        let room = shared.watch.room_max().saturating_sub(1);
        let helpers_max = size.unwrap_or(room).min(HELPERS_MAX);
        QueueHelpers {
            shared: Arc::clone(shared),
            mailbox: Arc::clone(mailbox),
            leased: Mutex::new(LeasedQueue {
                queue: QueueState::default(),
                lease: None,
                leases: 0,
                unnotified: 0,
                broken: None,
            }),
            lease_number: AtomicU64::new(0),
            next: AtomicU16::new(0),
            helper_slots: (0..helpers_max).map(|_| HelperSlot::default()).collect(),
            awake: AtomicUsize::new(0),
            ending: AtomicBool::new(false),
            threads: Arc::default(),
        }
    }

    /// Whether the requests behind `slot` justify waking a helper.
    pub(crate) fn are_worth_waking(
        &self,
        slot: &Slot,
        waiting: u16,
        sees_more: impl FnOnce() -> bool,
    ) -> bool {
        if self.helper_slots.is_empty() {
            return false;
        }
        waiting >= WAKE_AT || slot.bytes() >= LARGE_BYTES && sees_more()
    }

    /// Whether a helper is awake or may be woken.
    pub(crate) fn has_helper(&self) -> bool {
        self.awake.load(Ordering::Relaxed) > 0 || self.has_room()
    }

    /// A configured number of helpers is woken even without a free CPU.
    fn has_room(&self) -> bool {
        self.shared.config.queue_helpers_max.is_some() || self.shared.watch.has_room()
    }

    /// Leases the queue for requests of `session`. The caller has listed its own request as away.
    pub(crate) fn begin_lease(
        &self,
        queue: &mut QueueState,
        run: u64,
        session: &SessionOf<M>,
        call: Option<&Arc<OwnedFd>>,
    ) -> Lease<SessionOf<M>> {
        let mut leased = self.leased.lock();
        leased.leases += 1;
        let lease = Lease {
            number: leased.leases,
            run,
            session: Arc::clone(session),
            chains: queue.ring.chains(),
            available_index: queue.ring.available_index(),
            call: call.cloned(),
        };
        std::mem::swap(&mut leased.queue, queue);
        leased.lease = Some(lease.clone());
        (leased.unnotified, leased.broken) = (0, None);
        let next = leased.queue.ring.next_available();
        self.next.store(next, Ordering::Relaxed);
        self.lease_number.store(lease.number, Ordering::Release);
        lease
    }

    /// Ends the lease. Fails when the queue is broken.
    pub(crate) fn end_lease(&self, queue: &mut QueueState) -> Result<(), Broken> {
        let mut leased = self.leased.lock();
        std::mem::swap(&mut leased.queue, queue);
        self.lease_number.store(0, Ordering::Release);
        let (lease, broken) = (leased.lease.take(), leased.broken.take());
        drop(leased);
        // Unlocked: this may drop the session's file system.
        drop(lease);
        broken.map_or(Ok(()), Err)
    }

    /// Returns a finished request, takes and reads the next, notifies the guest where due, and wakes a
    /// helper if enough are pending.
    pub(crate) fn exchange(
        self: &Arc<Self>,
        lease: &Lease<SessionOf<M>>,
        mut finished: Option<Slot>,
    ) -> Next {
        loop {
            let Taken { mut slot, waiting } = match self.take(lease, finished) {
                ControlFlow::Continue(taken) => taken,
                ControlFlow::Break(next) => return next,
            };
            match slot.read(&lease.chains) {
                Ok(()) => {
                    if self.are_worth_waking(&slot, waiting, || self.sees_more(lease)) {
                        self.wake_one();
                    }
                    return Next::Request(slot);
                }
                Err(fault) => {
                    tracing::debug!(%fault, "a guest's request is malformed");
                    self.shared.metrics.count_malformed();
                    finished = Some(slot);
                }
            }
        }
    }

    /// Returns a finished request and takes the next.
    fn take(
        &self,
        lease: &Lease<SessionOf<M>>,
        finished: Option<Slot>,
    ) -> ControlFlow<Next, Taken> {
        let mut leased = self.leased.lock();
        let lease_number = leased.lease.as_ref().map(|lease| lease.number);
        if lease_number != Some(lease.number) || leased.broken.is_some() {
            return ControlFlow::Break(Next::LeaseEnded(finished));
        }
        let exchanged = leased.exchange(&self.mailbox, lease.run, finished);
        let (taken, notify) = match exchanged {
            Ok(exchanged) => exchanged,
            Err(broken) => {
                leased.broken = Some(broken);
                return ControlFlow::Break(Next::LeaseEnded(None));
            }
        };
        let taken_up_to = leased.queue.ring.next_available();
        self.next.store(taken_up_to, Ordering::Relaxed);
        drop(leased);
        if notify && let Some(call) = &lease.call {
            signal(call.as_fd());
        }
        taken.map_or(ControlFlow::Break(Next::Nothing), ControlFlow::Continue)
    }

    /// Whether the ring may have a request.
    pub(crate) fn sees_more(&self, lease: &Lease<SessionOf<M>>) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        lease.available_index.sees_more_than(next)
    }

    /// Records what a request waits for that was moved to the blocking pool.
    pub(crate) fn note_wait(&self, head: u16, wait: Wait) {
        let mut leased = self.leased.lock();
        let away = leased.queue.away.iter_mut().rev();
        if let Some(away) = away.into_iter().find(|away| away.head == head) {
            away.wait = wait;
        }
    }
}

impl<S> LeasedQueue<S> {
    /// Returns the next request, and whether to notify the guest.
    fn exchange(
        &mut self,
        mailbox: &Mailbox,
        run: u64,
        finished: Option<Slot>,
    ) -> Result<(Option<Taken>, bool), Broken> {
        let mut large = false;
        if let Some(finished) = finished {
            large = finished.bytes() >= LARGE_BYTES;
            self.queue.take_back(finished)?;
            self.unnotified += 1;
        }
        let taken = self.take(mailbox, run)?;
        let mut notify = false;
        if large || taken.is_none() || self.unnotified >= NOTIFY_EVERY {
            self.unnotified = 0;
            notify = self.queue.ring.needs_notification()?;
        }
        Ok((taken, notify))
    }

    fn take(&mut self, mailbox: &Mailbox, run: u64) -> Result<Option<Taken>, Broken> {
        // Checked after the guest's index: see `mailbox`.
        if !self.queue.ring.has_available()? || mailbox.has_messages() {
            return Ok(None);
        }
        let Some(head) = self.queue.ring.take()? else {
            return Ok(None);
        };
        let Some(slot) = self.queue.slot(run, head) else {
            self.queue.ring.complete(head, 0)?;
            return Ok(None);
        };
        self.queue.away.push(slot.away(Wait::Io));
        let waiting = self.queue.ring.waiting();
        Ok(Some(Taken { slot, waiting }))
    }
}

//! Further threads for a queue that has more to do than its own thread gets done.
//!
//! **Who may touch what.** The ring, with all that is on the [`QueueState`], belongs to the thread of the queue,
//! which alone hears of changes and sleeps for kicks. While there is much to do it *lends* the queue: puts it
//! where its helpers finds it too, behind a lock that is held for taking a request and for giving one back,
//! never while one is read or carried out. When nothing is left to do, or there is news, it takes the queue
//! away again. Who of the helpers has a request then carries it out and leaves the result as the pool does
//! ([`Mailbox`]); it is on the list of what is away from the moment at which it was taken.
//!
//! **What the helpers carries out.** Everything but INIT, DESTROY and waits for locks, which go to the thread of
//! the queue, not begun. Requests that are in flight at once have no order among each other, and queues of
//! one session are served side by side anyhow. A thread of the helpers sleeps where a request sleeps: there are
//! few of them, and the thread of the queue never waits for one.

mod helper;

use crate::frame::Kind;
use crate::mailbox::{Mailbox, Returned, signal};
use crate::queue::{AvailableIndex, Broken, ChainTable, VirtqueueRing};
use crate::queue_state::{Away, LARGE_BYTES, QueueState};
use crate::serving::Shared;
use crate::session::{GuestSession, MakeFileSystem};
use crate::slot::Slot;
use helper::HelperSlot;
use parking_lot::Mutex;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use thrufs::serving::LiveCount;
use thrufs::{FileSystem, Wait};

/// After so many requests the guest is told, though there are more: it has work while we have.
pub(crate) const NOTIFY_EVERY: u64 = 4;

/// So many requests have to wait for another thread to be called. To wake one costs as much as one or two.
const WAKE_AT: u16 = 4;

/// More threads than these wait for each other at one queue.
const HELPERS_MAX: usize = 3;

/// What one has to know of a queue that is lent.
pub(crate) struct Lease<F: FileSystem> {
    /// Which time it is that it is lent.
    lease_number: u64,
    run: u64,
    session: Arc<GuestSession<F>>,
    chains: ChainTable,
    available_index: AvailableIndex,
    /// Where to tell the guest.
    call: Option<Arc<OwnedFd>>,
}

impl<F: FileSystem> Lease<F> {
    pub(crate) fn session(&self) -> &Arc<GuestSession<F>> {
        &self.session
    }
}

impl<F: FileSystem> Clone for Lease<F> {
    fn clone(&self) -> Lease<F> {
        Lease {
            lease_number: self.lease_number,
            run: self.run,
            session: Arc::clone(&self.session),
            chains: self.chains,
            available_index: self.available_index.clone(),
            call: self.call.clone(),
        }
    }
}

/// What stands behind the lock.
struct LeasedQueue<F: FileSystem> {
    /// While there are lease. Else an empty one.
    queue: QueueState,
    lease: Option<Lease<F>>,
    /// How often it was lent.
    leases: u64,
    /// Given back since the guest was told.
    unnotified: u64,
    /// What somebody has found out. Nothing is taken or given back any more.
    broken: Option<Broken>,
}

/// A request that was taken.
pub(crate) struct Taken {
    head: u16,
    slot: Slot,
    /// So many more wait, as far as is known.
    waiting: u16,
}

/// What is found in what was taken.
pub(crate) enum Found {
    Request(Slot, Kind),
    /// What makes no sense, to be given back as it is.
    Malformed(Returned),
}

/// What comes next.
pub(crate) enum Next {
    Request(Taken),
    /// There is no request, or there is news to be read first.
    Nothing,
    /// The queue is another's, or lent anew. What was to be given back and was not is here.
    LeaseEnded(Option<Returned>),
}

/// See the module.
pub(crate) struct QueueHelpers<M: MakeFileSystem> {
    shared: Arc<Shared<M>>,
    mailbox: Arc<Mailbox>,
    leased: Mutex<LeasedQueue<M::FileSystem>>,
    /// Which time it is that the queue is lent; 0 while it is not.
    lease_number: AtomicU64,
    /// Up to where requests were taken.
    next: AtomicU16,
    helper_slots: Vec<HelperSlot>,
    /// Whoever is called comes, whether there is a CPU or not.
    is_sized: bool,
    /// Threads that are not asleep.
    awake: AtomicUsize,
    ending: AtomicBool,
    threads: Arc<LiveCount>,
}

impl<M: MakeFileSystem> QueueHelpers<M> {
    /// At most `size` threads for the queue of `mailbox`; as many as there are CPUs for, if it is not said. They
    /// are started when they are called.
    pub(crate) fn new(
        shared: &Arc<Shared<M>>,
        mailbox: &Arc<Mailbox>,
        size: Option<usize>,
    ) -> QueueHelpers<M> {
        let room = shared.watch.room_max().saturating_sub(1);
        let helpers_max = size.unwrap_or(room).min(HELPERS_MAX);
        QueueHelpers {
            is_sized: size.is_some(),
            shared: Arc::clone(shared),
            mailbox: Arc::clone(mailbox),
            leased: Mutex::new(LeasedQueue {
                queue: QueueState::new(VirtqueueRing::absent(), Vec::new()),
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

    /// Whether what waits behind `slot` is enough for another thread.
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

    /// Whether anybody is awake or may be called.
    pub(crate) fn has_helper(&self) -> bool {
        self.awake.load(Ordering::Relaxed) > 0 || self.has_room()
    }

    /// Whether one more may be awake.
    fn has_room(&self) -> bool {
        self.is_sized || self.shared.watch.has_room()
    }

    /// Lends the queue, for requests of `session`. The one that the caller has in hand is on its list of what
    /// is away.
    pub(crate) fn begin_lease(
        &self,
        queue: &mut QueueState,
        run: u64,
        session: &Arc<GuestSession<M::FileSystem>>,
        call: Option<&Arc<OwnedFd>>,
    ) -> Lease<M::FileSystem> {
        let mut leased = self.leased.lock();
        leased.leases += 1;
        let lease = Lease {
            lease_number: leased.leases,
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
        self.lease_number
            .store(lease.lease_number, Ordering::Release);
        lease
    }

    /// Takes the queue away again.
    ///
    /// # Errors
    ///
    /// When the queue is broken.
    pub(crate) fn end_lease(&self, queue: &mut QueueState) -> Result<(), Broken> {
        let mut leased = self.leased.lock();
        std::mem::swap(&mut leased.queue, queue);
        self.lease_number.store(0, Ordering::Release);
        let (lease, broken) = (leased.lease.take(), leased.broken.take());
        drop(leased);
        // The session's file system may go with it.
        drop(lease);
        broken.map_or(Ok(()), Err)
    }

    /// Gives back what was carried out and takes the next. Tells the guest where it is time.
    pub(crate) fn exchange(
        &self,
        lease: &Lease<M::FileSystem>,
        finished: Option<Returned>,
    ) -> Next {
        let mut leased = self.leased.lock();
        let lease_number = leased.lease.as_ref().map(|lease| lease.lease_number);
        if lease_number != Some(lease.lease_number) || leased.broken.is_some() {
            return Next::LeaseEnded(finished);
        }
        let exchanged = leased.exchange(&self.mailbox, lease.run, finished);
        let (next, tell) = exchanged.unwrap_or_else(|broken| {
            leased.broken = Some(broken);
            (Next::LeaseEnded(None), false)
        });
        let taken_up_to = leased.queue.ring.next_available();
        self.next.store(taken_up_to, Ordering::Relaxed);
        drop(leased);
        if tell && let Some(call) = &lease.call {
            signal(call.as_fd());
        }
        next
    }

    /// Whether there may be something to be taken.
    pub(crate) fn sees_more(&self, lease: &Lease<M::FileSystem>) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        lease.available_index.sees_more_than(next)
    }

    /// Reads what was taken, and calls another thread if there is enough to do for it.
    pub(crate) fn read(self: &Arc<Self>, lease: &Lease<M::FileSystem>, taken: Taken) -> Found {
        let Taken {
            head,
            mut slot,
            waiting,
        } = taken;
        match slot.read(head, &lease.chains) {
            Ok(kind) => {
                if self.are_worth_waking(&slot, waiting, || self.sees_more(lease)) {
                    self.wake_one();
                }
                Found::Request(slot, kind)
            }
            Err(fault) => {
                tracing::debug!(%fault, "a guest's request is malformed");
                self.shared.metrics.count_malformed();
                Found::Malformed(Returned { slot, length: 0 })
            }
        }
    }

    /// Notes for what a request waits that sleeps elsewhere from now on.
    pub(crate) fn note_wait(&self, head: u16, wait: Wait) {
        let mut leased = self.leased.lock();
        let away = leased.queue.away.iter_mut().rev();
        if let Some(away) = away.into_iter().find(|away| away.head == head) {
            away.wait = wait;
        }
    }
}

impl<F: FileSystem> LeasedQueue<F> {
    /// Returns what comes next, and whether to tell the guest.
    fn exchange(
        &mut self,
        mailbox: &Mailbox,
        run: u64,
        finished: Option<Returned>,
    ) -> Result<(Next, bool), Broken> {
        let mut large = false;
        if let Some(finished) = finished {
            large = finished.slot.bytes() >= LARGE_BYTES;
            self.queue.take_back(finished)?;
            self.unnotified += 1;
        }
        let next = self.take(mailbox, run)?;
        let is_nothing = matches!(next, Next::Nothing);
        let mut tell = false;
        if large || is_nothing || self.unnotified >= NOTIFY_EVERY {
            self.unnotified = 0;
            tell = self.queue.ring.needs_notification()?;
        }
        Ok((next, tell))
    }

    fn take(&mut self, mailbox: &Mailbox, run: u64) -> Result<Next, Broken> {
        // Looked at after the guest's index: see `mailbox`.
        if !self.queue.ring.has_available()? || mailbox.has_messages() {
            return Ok(Next::Nothing);
        }
        let Some(head) = self.queue.ring.take()? else {
            return Ok(Next::Nothing);
        };
        let number = self.queue.ring.tracker().number();
        let Some(slot) = self.queue.slot(run, number) else {
            self.queue.ring.complete(head, 0)?;
            return Ok(Next::Nothing);
        };
        self.queue.away.push(Away {
            head,
            wait: Wait::Io,
            run,
        });
        let waiting = self.queue.ring.waiting();
        Ok(Next::Request(Taken {
            head,
            slot,
            waiting,
        }))
    }
}

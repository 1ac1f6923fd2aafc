//! Further threads for a queue that has more to do than its own thread gets done.
//!
//! **Who may touch what.** The ring, with all that is on the [`Desk`], belongs to the thread of the queue,
//! which alone hears of changes and sleeps for kicks. While there is much to do it *lends* the desk: puts it
//! where its crew finds it too, behind a lock that is held for taking a request and for giving one back,
//! never while one is read or carried out. When nothing is left to do, or there is news, it takes the desk
//! away again. Who of the crew has a request then carries it out and leaves the result as the pool does
//! ([`Post`]); it is on the list of what is away from the moment at which it was taken.
//!
//! **What the crew carries out.** Everything but INIT, DESTROY and waits for locks, which go to the thread of
//! the queue, not begun. Requests that are in flight at once have no order among each other, and queues of
//! one session are served side by side anyhow. A thread of the crew sleeps where a request sleeps: there are
//! few of them, and the thread of the queue never waits for one.

mod mate;

use crate::desk::{Away, Desk, LARGE_BYTES};
use crate::frame::Kind;
use crate::post::{Post, Returned, ring};
use crate::queue::{Broken, ChainTable, Lookout, Ring};
use crate::serving::Shared;
use crate::session::{GuestSession, MakeFileSystem};
use crate::slot::Slot;
use mate::Berth;
use parking_lot::Mutex;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use thrufs::serving::LiveCount;
use thrufs::{FileSystem, Wait};

/// After so many requests the guest is told, though there are more: it has work while we have.
pub(crate) const TELL_EVERY: u64 = 4;

/// So many requests have to wait for another thread to be called. To wake one costs as much as one or two.
const CALL_AT: u16 = 4;

/// More threads than these wait for each other at one queue.
const CREW_MAX: usize = 3;

/// What one has to know of a desk that is lent.
pub(crate) struct Terms<F: FileSystem> {
    /// Which time it is that it is lent.
    opening: u64,
    run: u64,
    session: Arc<GuestSession<F>>,
    chains: ChainTable,
    lookout: Lookout,
    /// Where to tell the guest.
    call: Option<Arc<OwnedFd>>,
}

impl<F: FileSystem> Terms<F> {
    pub(crate) fn session(&self) -> &Arc<GuestSession<F>> {
        &self.session
    }
}

impl<F: FileSystem> Clone for Terms<F> {
    fn clone(&self) -> Terms<F> {
        Terms {
            opening: self.opening,
            run: self.run,
            session: Arc::clone(&self.session),
            chains: self.chains,
            lookout: self.lookout.clone(),
            call: self.call.clone(),
        }
    }
}

/// What stands behind the lock.
struct Counter<F: FileSystem> {
    /// While there are terms. Else an empty one.
    desk: Desk,
    terms: Option<Terms<F>>,
    /// How often it was lent.
    openings: u64,
    /// Given back since the guest was told.
    untold: u64,
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
    /// The desk is another's, or lent anew. What was to be given back and was not is here.
    Closed(Option<Returned>),
}

/// See the module.
pub(crate) struct Crew<M: MakeFileSystem> {
    shared: Arc<Shared<M>>,
    post: Arc<Post>,
    counter: Mutex<Counter<M::FileSystem>>,
    /// Which time it is that the desk is lent; 0 while it is not.
    opening: AtomicU64,
    /// Up to where requests were taken.
    next: AtomicU16,
    berths: Vec<Berth>,
    /// Whoever is called comes, whether there is a CPU or not.
    is_sized: bool,
    /// Threads that are not asleep.
    awake: AtomicUsize,
    ending: AtomicBool,
    threads: Arc<LiveCount>,
}

impl<M: MakeFileSystem> Crew<M> {
    /// At most `size` threads for the queue of `post`; as many as there are CPUs for, if it is not said. They
    /// are started when they are called.
    pub(crate) fn new(shared: &Arc<Shared<M>>, post: &Arc<Post>, size: Option<usize>) -> Crew<M> {
        let room = shared.watch.room_max().saturating_sub(1);
        let size_max = size.unwrap_or(room).min(CREW_MAX);
        Crew {
            is_sized: size.is_some(),
            shared: Arc::clone(shared),
            post: Arc::clone(post),
            counter: Mutex::new(Counter {
                desk: Desk::new(Ring::absent(), Vec::new()),
                terms: None,
                openings: 0,
                untold: 0,
                broken: None,
            }),
            opening: AtomicU64::new(0),
            next: AtomicU16::new(0),
            berths: (0..size_max).map(|_| Berth::default()).collect(),
            awake: AtomicUsize::new(0),
            ending: AtomicBool::new(false),
            threads: Arc::default(),
        }
    }

    /// Whether what waits behind `slot` is enough for another thread.
    pub(crate) fn is_enough(
        &self,
        slot: &Slot,
        waiting: u16,
        sees_more: impl FnOnce() -> bool,
    ) -> bool {
        if self.berths.is_empty() {
            return false;
        }
        waiting >= CALL_AT || slot.bytes() >= LARGE_BYTES && sees_more()
    }

    /// Whether anybody is awake or may be called.
    pub(crate) fn has_anybody(&self) -> bool {
        self.awake.load(Ordering::Relaxed) > 0 || self.has_room()
    }

    /// Whether one more may be awake.
    fn has_room(&self) -> bool {
        self.is_sized || self.shared.watch.has_room()
    }

    /// Lends the desk, for requests of `session`. The one that the caller has in hand is on its list of what
    /// is away.
    pub(crate) fn lend(
        &self,
        desk: &mut Desk,
        run: u64,
        session: &Arc<GuestSession<M::FileSystem>>,
        call: Option<&Arc<OwnedFd>>,
    ) -> Terms<M::FileSystem> {
        let mut counter = self.counter.lock();
        counter.openings += 1;
        let terms = Terms {
            opening: counter.openings,
            run,
            session: Arc::clone(session),
            chains: desk.ring.chains(),
            lookout: desk.ring.lookout(),
            call: call.cloned(),
        };
        std::mem::swap(&mut counter.desk, desk);
        counter.terms = Some(terms.clone());
        (counter.untold, counter.broken) = (0, None);
        let next = counter.desk.ring.next_available();
        self.next.store(next, Ordering::Relaxed);
        self.opening.store(terms.opening, Ordering::Release);
        terms
    }

    /// Takes the desk away again.
    ///
    /// # Errors
    ///
    /// When the queue is broken.
    pub(crate) fn end_lending(&self, desk: &mut Desk) -> Result<(), Broken> {
        let mut counter = self.counter.lock();
        std::mem::swap(&mut counter.desk, desk);
        self.opening.store(0, Ordering::Release);
        let (terms, broken) = (counter.terms.take(), counter.broken.take());
        drop(counter);
        // The session's file system may go with it.
        drop(terms);
        broken.map_or(Ok(()), Err)
    }

    /// Gives back what was carried out and takes the next. Tells the guest where it is time.
    pub(crate) fn exchange(
        &self,
        terms: &Terms<M::FileSystem>,
        finished: Option<Returned>,
    ) -> Next {
        let mut counter = self.counter.lock();
        let opening = counter.terms.as_ref().map(|terms| terms.opening);
        if opening != Some(terms.opening) || counter.broken.is_some() {
            return Next::Closed(finished);
        }
        let exchanged = counter.exchange(&self.post, terms.run, finished);
        let (next, tell) = exchanged.unwrap_or_else(|broken| {
            counter.broken = Some(broken);
            (Next::Closed(None), false)
        });
        let taken_up_to = counter.desk.ring.next_available();
        self.next.store(taken_up_to, Ordering::Relaxed);
        drop(counter);
        if tell && let Some(call) = &terms.call {
            ring(call.as_fd());
        }
        next
    }

    /// Whether there may be something to be taken.
    pub(crate) fn sees_more(&self, terms: &Terms<M::FileSystem>) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        terms.lookout.sees_more_than(next)
    }

    /// Reads what was taken, and calls another thread if there is enough to do for it.
    pub(crate) fn read(self: &Arc<Self>, terms: &Terms<M::FileSystem>, taken: Taken) -> Found {
        let Taken {
            head,
            mut slot,
            waiting,
        } = taken;
        match slot.read(head, &terms.chains) {
            Ok(kind) => {
                if self.is_enough(&slot, waiting, || self.sees_more(terms)) {
                    self.call();
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
        let mut counter = self.counter.lock();
        let away = counter.desk.away.iter_mut().rev();
        if let Some(away) = away.into_iter().find(|away| away.head == head) {
            away.wait = wait;
        }
    }
}

impl<F: FileSystem> Counter<F> {
    /// Returns what comes next, and whether to tell the guest.
    fn exchange(
        &mut self,
        post: &Post,
        run: u64,
        finished: Option<Returned>,
    ) -> Result<(Next, bool), Broken> {
        let mut large = false;
        if let Some(finished) = finished {
            large = finished.slot.bytes() >= LARGE_BYTES;
            self.desk.take_back(finished)?;
            self.untold += 1;
        }
        let next = self.take(post, run)?;
        let is_nothing = matches!(next, Next::Nothing);
        let mut tell = false;
        if large || is_nothing || self.untold >= TELL_EVERY {
            self.untold = 0;
            tell = self.desk.ring.must_tell()?;
        }
        Ok((next, tell))
    }

    fn take(&mut self, post: &Post, run: u64) -> Result<Next, Broken> {
        // Looked at after the guest's index: see `post`.
        if !self.desk.ring.has_available()? || post.has_news() {
            return Ok(Next::Nothing);
        }
        let Some(head) = self.desk.ring.take()? else {
            return Ok(Next::Nothing);
        };
        let number = self.desk.ring.tracker().number();
        let Some(slot) = self.desk.slot(run, number) else {
            self.desk.ring.complete(head, 0)?;
            return Ok(Next::Nothing);
        };
        self.desk.away.push(Away {
            head,
            wait: Wait::Io,
            run,
        });
        let waiting = self.desk.ring.waiting();
        Ok(Next::Request(Taken {
            head,
            slot,
            waiting,
        }))
    }
}

//! The thread of a queue: takes requests, answers them where it can, and tells the guest.
//!
//! It sleeps in one system call, for the guest's kick and for what others leave ([`Post`]), both by the
//! edge, so that neither has to be read. All that is available is carried out in a row; replies are seen
//! by a guest that looks, and told to one that sleeps once nothing is left to do, after some, or at once
//! when they have much data. With more to do than one thread should do alone, it serves together with
//! others for a while ([`crate::crew`]).

mod again;
mod carry_out;
mod together;

pub(crate) use again::in_order;
pub(crate) use carry_out::{Carried, Sleeping, carry_out};

use crate::crew::{Crew, TELL_EVERY};
use crate::desk::{Away, Desk, LARGE_BYTES};
use crate::frame::Kind;
use crate::journal::{Again, Journal, Tracker};
use crate::line::Line;
use crate::memory::Regions;
use crate::patience::Patience;
use crate::post::{Mail, Post, Returned, Wiring, ring};
use crate::queue::Broken;
use crate::session::{GuestSession, MakeFileSystem, Nobody, Sessions};
use crate::slot::Slot;
use crate::steward::{Row, Watch};
use rustix::event::{Timespec, epoll};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thrufs::serving::{Pool, ServingThreads};
use thrufs::{Dispatcher, Errno, Metrics};

/// The queue for FORGETs, which nobody waits for.
const HIGH_PRIORITY: usize = 0;

/// How long they are let gather. To be told of each would cost the guest more than the FORGETs do.
const FORGET_INTERVAL: Duration = Duration::from_millis(1);

/// How long memory stays that a long reply needed.
const KEEP_MEMORY: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// What the threads of a connection share.
pub(crate) struct Shared<M: MakeFileSystem> {
    pub(crate) sessions: Sessions<M>,
    pub(crate) pool: Arc<Pool<Sleeping<M::FileSystem>>>,
    pub(crate) threads: ServingThreads,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) line: Arc<Line>,
    /// Answers what belongs to no session.
    pub(crate) nobody: Dispatcher<Nobody>,
    pub(crate) drain_timeout: Duration,
    pub(crate) watch: Arc<Watch>,
    pub(crate) spin: Duration,
    /// How many threads a queue has besides its own when it has much to do, if that was said.
    pub(crate) crew_max: Option<usize>,
    /// For who comes after this process, if anybody does.
    pub(crate) journal: Option<Journal>,
}

/// How the thread of a queue has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// From where another has to go on.
    pub(crate) next_available: u16,
    /// What is still under way: waits for locks, which have no bound.
    pub(crate) away: Vec<Away>,
    /// What was to be carried out again and was not yet.
    pub(crate) again: Vec<u16>,
}

/// What a thread of a queue begins with.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) number: usize,
    /// Counts the threads that this queue has had.
    pub(crate) run: u64,
    pub(crate) post: Arc<Post>,
    pub(crate) wiring: Wiring,
    /// With the list of what was under way when the queue was stopped.
    pub(crate) desk: Desk,
    /// What was taken before, here or elsewhere, and has to be carried out again.
    pub(crate) again: Vec<u16>,
    /// Another process has served it before.
    pub(crate) succeeds: bool,
    /// With what to note what is in flight, where that was not begun with.
    pub(crate) tracker: Option<Tracker>,
    /// What another process has left, the next one last.
    pub(crate) left: Vec<Again>,
}

/// See the module.
pub(crate) struct Serving<M: MakeFileSystem> {
    shared: Arc<Shared<M>>,
    start: Start,
    epoll: OwnedFd,
    session: Option<Arc<GuestSession<M::FileSystem>>>,
    generation: u64,
    patience: Patience,
    stops: bool,
    crew: Arc<Crew<M>>,
}

impl<M: MakeFileSystem> Serving<M> {
    /// Makes ready; what can fail does so here.
    ///
    /// # Errors
    ///
    /// What the system says, also about a kick that nobody can wait for.
    pub(crate) fn new(shared: Arc<Shared<M>>, mut start: Start) -> rustix::io::Result<Serving<M>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&epoll, start.post.bell(), data, flags)?;
        epoll::add(&epoll, &start.wiring.kick, data, flags)?;
        // Nobody waits for what comes on the queue for FORGETs.
        let is_for_requests = start.number != HIGH_PRIORITY;
        let crew_size = if is_for_requests {
            shared.crew_max
        } else {
            Some(0)
        };
        start.desk.ring.set_log(start.wiring.log.clone());
        if start.left.is_empty() {
            adopt(&mut start);
        }
        if start.succeeds
            && let Some(call) = &start.wiring.call
        {
            // Of what was given back by who has died, nobody may have told the guest.
            ring(call.as_fd());
        }
        Ok(Serving {
            generation: shared.sessions.generation(),
            session: shared.sessions.current(),
            patience: Patience::new(shared.spin),
            crew: Arc::new(Crew::new(&shared, &start.post, crew_size)),
            shared,
            start,
            epoll,
            stops: false,
        })
    }

    /// Serves until it is told to stop.
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
                let keep = self.start.desk.is_large.then_some(KEEP_MEMORY);
                self.sleep(keep.as_ref());
            }
        }
        shared.watch.end_queue(self.start.number);
        self.wind_down();
        shared.watch.set_awake(self.start.number, false);
        Finished {
            next_available: self.start.desk.ring.next_available(),
            away: std::mem::take(&mut self.start.desk.away),
            again: std::mem::take(&mut self.start.again),
        }
    }

    /// Does all there is to do. True when there may be more already.
    fn turn(&mut self) -> Result<bool, Broken> {
        self.read_mail()?;
        if self.stops || self.start.desk.is_broken || !self.start.wiring.enabled {
            return Ok(false);
        }
        self.start.desk.ring.look_by_ourselves()?;
        self.carry_out_left()?;
        self.carry_out_again()?;
        let mut row = Row::default();
        // Whether there is anybody to serve together with is asked once, and looked out once.
        let (mut may_lend, mut has_looked_out) = (true, false);
        while self.start.desk.ring.has_available()? {
            // Looked at after the guest's index: see `post`.
            if self.start.post.has_news() {
                self.tell()?;
                return Ok(true);
            }
            let Some(head) = self.start.desk.ring.take()? else {
                break;
            };
            let number = self.start.desk.ring.tracker().number();
            let Some((slot, kind)) = self.read(head, number)? else {
                continue;
            };
            row.count(&slot);
            has_looked_out = false;
            if may_lend && self.has_enough_for_more(&slot) {
                may_lend = self.crew.has_anybody();
                if may_lend {
                    self.serve_together(slot, kind, &mut row)?;
                    has_looked_out = true;
                    continue;
                }
            }
            let large = self.carry_out_slot(slot, kind)?;
            if large || row.requests.is_multiple_of(TELL_EVERY) {
                self.tell()?;
            }
        }
        self.tell()?;
        if row.requests > 0 && self.start.number == HIGH_PRIORITY {
            std::thread::sleep(FORGET_INTERVAL);
            return Ok(true);
        }
        let found = self.looks_out(row, has_looked_out)?;
        Ok(found || self.start.desk.ring.ask_to_be_told()?)
    }

    /// Looks out for more after `row`, if nobody has. True when there is something.
    fn looks_out(&mut self, row: Row, has_looked_out: bool) -> Result<bool, Broken> {
        if row.requests == 0 {
            return Ok(false);
        }
        self.shared.watch.note(self.start.number, row);
        // Who asks one thing at a time and waits has to be woken, which takes longer.
        if row.requests == 1 || has_looked_out {
            return Ok(false);
        }
        self.patience.note_request();
        if !self.patience.is_worth_it() {
            return Ok(false);
        }
        let (post, ring) = (&self.start.post, &mut self.start.desk.ring);
        let found = self
            .patience
            .look_out(|| post.has_news() || ring.has_available() != Ok(false));
        Ok(found)
    }

    /// Carries out what was taken before and not answered.
    fn carry_out_again(&mut self) -> Result<(), Broken> {
        if self.start.again.is_empty() {
            return Ok(());
        }
        for head in std::mem::take(&mut self.start.again) {
            let number = self.start.desk.ring.tracker().number_of(head);
            self.carry_out(head, number)?;
        }
        self.tell()
    }

    /// Carries out what begins with the descriptor `head`. True when it moved much data.
    fn carry_out(&mut self, head: u16, number: u64) -> Result<bool, Broken> {
        match self.read(head, number)? {
            Some((slot, kind)) => self.carry_out_slot(slot, kind),
            None => Ok(false),
        }
    }

    /// Reads what begins with the descriptor `head`; none when it was given back, because it makes no
    /// sense or there is no memory for it.
    fn read(&mut self, head: u16, number: u64) -> Result<Option<(Slot, Kind)>, Broken> {
        let run = self.start.run;
        let Some(mut slot) = self.start.desk.slot(run, number) else {
            self.start.desk.ring.complete(head, 0)?;
            return Ok(None);
        };
        match slot.read(head, &self.start.desk.ring.chains()) {
            Ok(kind) => Ok(Some((slot, kind))),
            Err(fault) => {
                tracing::debug!(%fault, queue = self.start.number, "a guest's request is malformed");
                self.shared.metrics.count_malformed();
                self.finish(slot, 0)?;
                Ok(None)
            }
        }
    }

    fn carry_out_slot(&mut self, mut slot: Slot, kind: Kind) -> Result<bool, Broken> {
        let large = slot.bytes() >= LARGE_BYTES;
        let length = match (kind, &self.session) {
            (Kind::Init, _) => self.begin_session(&mut slot),
            (_, None) => slot.answer(&self.shared.nobody),
            (Kind::Destroy, Some(session)) => {
                let length = slot.answer(session.dispatcher());
                self.end_session();
                length
            }
            (Kind::Plain | Kind::Data(_), Some(_)) => {
                return self.dispatch(slot).map(|()| large);
            }
        };
        self.finish(slot, length)?;
        Ok(large)
    }

    fn dispatch(&mut self, slot: Slot) -> Result<(), Broken> {
        // Moved, not counted: all queues share the count.
        let Some(session) = self.session.take() else {
            return self.finish(slot, 0);
        };
        let dispatched = self.dispatch_to(&session, slot);
        self.session = Some(session);
        dispatched
    }

    fn dispatch_to(
        &mut self,
        session: &Arc<GuestSession<M::FileSystem>>,
        slot: Slot,
    ) -> Result<(), Broken> {
        let sleeping = match carry_out(session, &self.start.post, &self.shared.metrics, slot) {
            Carried::Out(returned) => return self.start.desk.finish(returned),
            Carried::Asleep(sleeping) => sleeping,
        };
        let away = Away {
            head: sleeping.slot.head(),
            wait: sleeping.wait,
            run: self.start.run,
        };
        match self.shared.pool.take(sleeping) {
            Ok(()) => {
                self.start.desk.away.push(away);
                Ok(())
            }
            Err(refused) => {
                let returned = self.carry_out_here(refused);
                self.start.desk.finish(returned)
            }
        }
    }

    /// Carries out what nobody else can.
    fn carry_out_here(&self, mut refused: Sleeping<M::FileSystem>) -> Returned {
        let metrics = &self.shared.metrics;
        if refused.wait.is_for_lock() {
            // A queue must not wait for a lock, whose holder may need it to let go.
            metrics.count_lock_refused();
            let dispatcher = refused.session.dispatcher();
            let length = refused.slot.refuse(dispatcher, Errno::ENOLCK);
            let slot = refused.slot;
            return Returned { slot, length };
        }
        metrics.count_blocked_inline();
        refused.carry_out()
    }

    /// Gives a request back to the guest, of whose reply `length` bytes were written.
    fn finish(&mut self, slot: Slot, length: u32) -> Result<(), Broken> {
        self.start.desk.finish(Returned { slot, length })
    }

    fn tell(&mut self) -> Result<(), Broken> {
        if self.start.desk.ring.must_tell()?
            && let Some(call) = &self.start.wiring.call
        {
            ring(call.as_fd());
        }
        Ok(())
    }

    /// INIT: a session with a file system of its own.
    fn begin_session(&mut self, slot: &mut Slot) -> u32 {
        // The one before must be able to go.
        self.session = None;
        self.note_session(None);
        let sessions = &self.shared.sessions;
        let session = match sessions.make() {
            Ok(session) => session,
            Err(errno) => return slot.refuse(&self.shared.nobody, errno),
        };
        let length = slot.answer(session.dispatcher());
        if session.start() {
            self.note_session(session.dispatcher().init_request().as_deref());
            sessions.install(&session);
            tracing::debug!(queue = self.start.number, "a guest begins a session");
        }
        self.look_at_session();
        length
    }

    /// DESTROY: the session is over.
    fn end_session(&mut self) {
        self.session = None;
        self.note_session(None);
        self.shared.sessions.end();
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

    fn read_mail(&mut self) -> Result<(), Broken> {
        let Some(mail) = self.start.post.collect() else {
            return Ok(());
        };
        let Mail {
            wiring,
            returned,
            undone,
            stops,
        } = mail;
        self.stops = stops;
        if self.generation != self.shared.sessions.generation() {
            self.look_at_session();
        }
        // All are taken off the books, whatever becomes of the first.
        let mut result = wiring.map_or(Ok(()), |wiring| self.rewire(wiring));
        for returned in returned {
            let taken = self.start.desk.take_back(returned);
            result = result.and(taken);
        }
        for (slot, kind) in undone {
            let done = self.carry_out_undone(slot, kind);
            result = result.and(done);
        }
        result?;
        self.tell()
    }

    /// Carries out what was taken elsewhere and not begun.
    fn carry_out_undone(&mut self, slot: Slot, kind: Kind) -> Result<(), Broken> {
        let is_back = self.start.desk.is_back(&slot);
        if !is_back || self.start.desk.is_broken {
            return Ok(());
        }
        if self.stops {
            self.start.again.push(slot.head());
            return Ok(());
        }
        self.carry_out_slot(slot, kind).map(drop)
    }

    fn rewire(&mut self, wiring: Wiring) -> Result<(), Broken> {
        let before = std::mem::replace(&mut self.start.wiring, wiring);
        self.start.desk.ring.set_log(self.start.wiring.log.clone());
        // No request is in progress on this thread, and those on others are noted by it.
        self.start.wiring.in_force = None;
        let after = &self.start.wiring;
        if !Arc::ptr_eq(&before.kick, &after.kick) {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            let data = epoll::EventData::new_u64(0);
            // Another may have been put in its place under the same number.
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
            // Somebody may have told the guest meanwhile by the one before, to which nobody listens any more.
            ring(call.as_fd());
        }
        if !Arc::ptr_eq(&before.regions, &after.regions) {
            // Slots in hand keep the memory of the guest that they were read with; others must not.
            self.start.desk.free.clear();
            let regions: Arc<Regions> = Arc::clone(&after.regions);
            self.start.desk.ring.set_regions(regions)?;
        }
        Ok(())
    }

    /// Stops taking requests, for good: the queue makes no sense.
    fn give_up(&mut self, broken: Broken) {
        if self.start.desk.is_broken {
            return;
        }
        self.start.desk.is_broken = true;
        self.shared.metrics.count_malformed();
        tracing::warn!(error = %broken, queue = self.start.number, "a guest's queue is broken");
        if let Some(error) = &self.start.wiring.error {
            ring(error.as_fd());
        }
    }

    /// Waits for requests that are away and will come back by themselves.
    fn wind_down(&mut self) {
        let deadline = Instant::now() + self.shared.drain_timeout;
        while self.start.desk.waits_for_others() {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(timeout) = Timespec::try_from(left) else {
                break;
            };
            if left.is_zero() {
                break;
            }
            self.sleep(Some(&timeout));
            if let Err(broken) = self.read_mail() {
                self.give_up(broken);
            }
        }
        if let Err(broken) = self.tell() {
            self.give_up(broken);
        }
        self.crew.end(deadline);
    }

    /// Sleeps until there is a kick or news. Memory that nobody needed meanwhile is given back.
    fn sleep(&mut self, timeout: Option<&Timespec>) {
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 2];
        let (watch, number) = (&self.shared.watch, self.start.number);
        watch.set_awake(number, false);
        let waited = epoll::wait(&self.epoll, &mut events, timeout);
        watch.set_awake(number, true);
        let timed_out = waited.is_ok_and(|(events, _)| events.is_empty());
        if timed_out && self.start.desk.is_large {
            self.start.desk.is_large = false;
            self.start
                .desk
                .free
                .iter_mut()
                .for_each(Slot::release_memory);
        }
    }
}

impl<M: MakeFileSystem> Drop for Serving<M> {
    fn drop(&mut self) {
        // After a panic, nobody else tells them.
        self.crew.begin_to_end();
    }
}

/// Makes what was under way when the queue was stopped part of it again, if it is the same queue: a
/// guest that has begun anew has another used index than that which was left.
fn adopt(start: &mut Start) {
    let Desk { ring, away, .. } = &mut start.desk;
    let missing = ring.next_available().wrapping_sub(ring.next_used());
    let same = usize::from(missing) == away.len() + start.again.len();
    let heads = away.iter().map(|away| away.head);
    let mut heads: Vec<u16> = heads.chain(start.again.iter().copied()).collect();
    let adopted = same && heads.iter().all(|head| ring.mark(*head).is_ok());
    if !adopted {
        ring.unmark_all();
        away.clear();
        start.again.clear();
        heads.clear();
    }
    match start.tracker.take() {
        Some(tracker) => ring.track(tracker, &heads),
        // It notes already, and nothing of this.
        None => heads.iter().for_each(|head| ring.note_taken(*head)),
    }
}

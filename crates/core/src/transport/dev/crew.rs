//! Who reads: leaders and followers.
//!
//! A member is at any time one of these:
//!
//! ```text
//!            read(2)                      gives its role away, or
//!   idle ◄───────────► busy reader ───────the steward takes it───────► away
//!    ▲                                                                   │ done: answered
//!    │ called                          enough readers                    ▼
//!    └────────────── standing by ◄────────────────────────────────── rejoins
//!    ▲                                  one is missing                   │
//!    └───────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Readers are kept at a number while members come and go; it is one while a reader is paired with
//! its caller ([`crate::transport::pairing`]). Two rules keep hand-overs rare: whoever goes away calls a reader
//! in only when no other reader is idle (the steward sees to it later if that was too sparing), and
//! whoever comes back takes the first place that is free. A member that goes away to wait for a lock,
//! which may be for ever, is always replaced.
//!
//! **Who may touch what.** The roster, and every change of the reader's role, belong to the lock,
//! with one exception: a member's `word`. It says whether the member has the role and whether it is
//! busy, with a number that grows by each request. The member itself writes it before and after
//! each request, without the lock; those who hold the lock take the role away by clearing its bit,
//! which the member finds out when it puts its request down. So a request costs two atomic
//! operations on a cache line of the member's own, and no lock.

mod pair;

pub(super) use pair::Matchmaker;

use super::Load;
use crate::dispatch::Wait;
use crate::file_system::FileSystem;
use crate::metrics::bump;
use crate::serving::Alarm;
use crate::session::SessionConfig;
use crate::sleepers::Sleepers;
use crate::transport::Connection;
use crate::transport::scheduling::wants_cpu;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};
use thrufs_sys::signal::{ThreadId, current_thread_id, interrupt_thread};

/// The member reads requests.
const READER: u64 = 1;
/// The member has a request in hand.
const BUSY: u64 = 2;
/// Added to the word by every request.
const ONE_REQUEST: u64 = 4;

/// How long a member stands by before its memory goes back.
const KEEP_MEMORY: Duration = Duration::from_secs(1);
/// How long, after that, before it leaves.
const KEEP_THREAD: Duration = Duration::from_secs(9);
/// This many stand by for ever, so that the next request that sleeps need not wait for a thread.
const STANDBY_KEPT: usize = 2;

/// One thread of the crew.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Member {
    word: AtomicU64,
    /// The word when the steward last looked, and how often it has been the same; touched by nobody
    /// else.
    seen: AtomicU64,
    seen_times: AtomicU32,
    number: usize,
    /// How many requests had a caller; who that was last, as requests name callers; how often it was
    /// another than before; how many requests carried much data. Written by the member alone.
    asked: AtomicU64,
    caller: AtomicU32,
    changes: AtomicU64,
    large: AtomicU64,
    /// What the member is away for, as [`away_for`] says; changed under the roster's lock.
    away: AtomicU64,
    thread: OnceLock<(Thread, ThreadId)>,
}

/// So many looks at one request that does not sleep, and it takes too long all the same: it computes.
const RUNNING_LOOKS: u32 = 5;

const HERE: u64 = 0;
const AWAY_IO: u64 = 1;
/// The user of the request stands above.
const AWAY_LOCK: u64 = 2;
const AWAY_UID_SHIFT: u32 = 8;

fn away_for(wait: Wait) -> u64 {
    match wait {
        Wait::Io => AWAY_IO,
        Wait::Lock { uid } => AWAY_LOCK | u64::from(uid) << AWAY_UID_SHIFT,
    }
}

fn waits_for(away: u64) -> Option<Wait> {
    match away {
        HERE => None,
        AWAY_IO => Some(Wait::Io),
        _ => Some(Wait::Lock {
            uid: (away >> AWAY_UID_SHIFT) as u32,
        }),
    }
}

impl Member {
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// Called once, by the thread itself.
    pub(super) fn begin(&self) {
        let _ = self
            .thread
            .set((std::thread::current(), current_thread_id()));
    }

    /// A request was read, of the caller with this number; zero for those of the kernel itself.
    pub(super) fn take_up<F>(&self, crew: &Crew<F>, caller: u32) {
        if caller != 0 {
            count(&self.asked);
            if caller != self.caller.load(Ordering::Relaxed) {
                self.caller.store(caller, Ordering::Relaxed);
                count(&self.changes);
            }
        }
        let word = self.word.load(Ordering::Relaxed);
        // Ordered before the look at the alarm.
        self.word
            .swap((word + ONE_REQUEST) | BUSY, Ordering::SeqCst);
        crew.alarm.arm();
    }

    /// The request in hand carries much data.
    pub(super) fn count_large(&self) {
        count(&self.large);
    }

    /// The request was answered. False when the role of reader was taken or given away meanwhile.
    pub(super) fn put_down(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & READER != 0
            && self
                .word
                .compare_exchange(word, word & !BUSY, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
    }

    /// Whether the member, busy with the request of `word`, has been for too long. Asked by the
    /// steward alone, at every look.
    fn is_stuck(&self, word: u64, processes: Option<BorrowedFd<'_>>) -> bool {
        if self.seen.swap(word, Ordering::Relaxed) != word {
            self.seen_times.store(0, Ordering::Relaxed);
            return false;
        }
        let times = self.seen_times.fetch_add(1, Ordering::Relaxed) + 1;
        times >= RUNNING_LOOKS || !self.wants_cpu(processes)
    }

    /// Whether the thread is running or would if there were a CPU for it: then it does not sleep in
    /// its request, and another thread would get no further.
    fn wants_cpu(&self, processes: Option<BorrowedFd<'_>>) -> bool {
        self.thread
            .get()
            .is_none_or(|(_, id)| wants_cpu(processes, *id))
    }

    pub(super) fn is_reader(&self) -> bool {
        self.word.load(Ordering::SeqCst) & READER != 0
    }

    /// Gives the member, which is not busy, the role. Under the roster's lock.
    fn make_reader(&self) {
        let word = self.word.load(Ordering::Relaxed) & !BUSY;
        self.word.store(word | READER, Ordering::SeqCst);
    }
}

/// Adds one to a counter that only the calling thread writes.
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Whether a member may carry out a request that sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aside {
    /// Its role as reader is in other hands.
    Given,
    /// It is needed as a reader, or too many sleep already.
    Refused,
}

/// What a member does after its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Read,
    Leave,
}

/// All members, and the rules by which they change places.
#[derive(Debug)]
pub(super) struct Crew<F> {
    pub(super) connection: Arc<Connection<F>>,
    pub(super) load: Load,
    config: SessionConfig,
    /// How many readers there are unless one is paired.
    readers_wanted: usize,
    roster: Mutex<Roster>,
    pub(super) alarm: Alarm,
}

#[derive(Debug, Default)]
struct Roster {
    members: Vec<Arc<Member>>,
    standby: Vec<Arc<Member>>,
    readers: usize,
    /// How many there should be.
    wanted: usize,
    /// Members that are away.
    away: Sleepers,
    numbers: usize,
}

impl<F: FileSystem> Crew<F> {
    pub(super) fn new(
        connection: &Arc<Connection<F>>,
        config: SessionConfig,
        load: Load,
    ) -> Crew<F> {
        let readers_wanted = config.threads.count();
        Crew {
            connection: Arc::clone(connection),
            load,
            config,
            readers_wanted,
            roster: Mutex::new(Roster {
                wanted: readers_wanted,
                ..Roster::default()
            }),
            alarm: Alarm::default(),
        }
    }

    /// Starts the readers; fails when not even one could be.
    pub(super) fn start(self: &Arc<Self>) -> io::Result<()> {
        let mut roster = self.roster.lock();
        while roster.readers < roster.wanted {
            match self.spawn_reader(&mut roster) {
                Ok(()) => {}
                Err(error) if roster.readers == 0 => return Err(error),
                Err(error) => {
                    let (readers, wanted) = (roster.readers, roster.wanted);
                    tracing::warn!(%error, readers, wanted, "fewer readers than wanted");
                    break;
                }
            }
        }
        self.note(&mut roster);
        Ok(())
    }

    fn spawn_reader(self: &Arc<Self>, roster: &mut Roster) -> io::Result<()> {
        let member = Arc::new(Member {
            word: AtomicU64::new(READER),
            seen: AtomicU64::new(0),
            seen_times: AtomicU32::new(0),
            number: roster.numbers,
            asked: AtomicU64::new(0),
            caller: AtomicU32::new(0),
            changes: AtomicU64::new(0),
            large: AtomicU64::new(0),
            away: AtomicU64::new(HERE),
            thread: OnceLock::new(),
        });
        // Counted before it answers anybody, who may look.
        let readers = &self.connection.metrics().figures.readers;
        readers.store(roster.readers as u64 + 1, Ordering::Relaxed);
        super::spawn(self, &member).inspect_err(|_| self.note(roster))?;
        roster.numbers += 1;
        roster.readers += 1;
        roster.members.push(member);
        Ok(())
    }

    /// Puts in one more reader: one that stands by, or a new one. False when none is to be had.
    fn call_reader(self: &Arc<Self>, roster: &mut Roster) -> bool {
        if let Some(member) = roster.standby.pop() {
            member.make_reader();
            roster.readers += 1;
            if let Some((thread, _)) = member.thread.get() {
                thread.unpark();
            }
            return true;
        }
        match self.spawn_reader(roster) {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(%error, "no further thread");
                false
            }
        }
    }

    /// `member` is about to sleep: takes its role as reader away, unless it must not.
    pub(super) fn stand_aside(self: &Arc<Self>, member: &Arc<Member>, wait: Wait) -> Aside {
        let mut roster = self.roster.lock();
        let room = roster.away.admits(wait, self.config.limits());
        if !member.is_reader() {
            // The steward was quicker: counted among those who sleep already.
            return match wait {
                Wait::Io => Aside::Given,
                Wait::Lock { .. } if !room => Aside::Refused,
                Wait::Lock { .. } => {
                    roster.count_back(member);
                    roster.count_away(member, wait);
                    self.note(&mut roster);
                    Aside::Given
                }
            };
        }
        let idle = |other: &Arc<Member>| {
            !Arc::ptr_eq(other, member)
                && other.word.load(Ordering::SeqCst) & (READER | BUSY) == READER
        };
        let needed = wait.is_for_lock() || !roster.members.iter().any(idle);
        let replaced = room && (!needed || self.call_reader(&mut roster) || roster.readers > 1);
        if !replaced {
            if wait == Wait::Io {
                bump(&self.connection.metrics().figures.blocked_inline);
            }
            return Aside::Refused;
        }
        member.word.fetch_and(!READER, Ordering::SeqCst);
        roster.readers -= 1;
        roster.count_away(member, wait);
        self.note(&mut roster);
        Aside::Given
    }

    /// `member` has answered a request away from the readers. Comes back when it is one again, or
    /// shall leave. `release_memory` is called when it has stood by for a while.
    pub(super) fn rejoin(&self, member: &Arc<Member>, mut release_memory: impl FnMut()) -> Next {
        let mut roster = self.roster.lock();
        roster.count_back(member);
        if self.connection.control.is_stopping() {
            return Next::Leave;
        }
        if roster.readers < roster.wanted {
            member.make_reader();
            roster.readers += 1;
            self.note(&mut roster);
            return Next::Read;
        }
        member.word.fetch_and(!BUSY, Ordering::SeqCst);
        roster.standby.push(Arc::clone(member));
        self.note(&mut roster);
        drop(roster);
        if let Some(next) = self.stand_by(member, Some(KEEP_MEMORY)) {
            return next;
        }
        release_memory();
        if let Some(next) = self.stand_by(member, Some(KEEP_THREAD)) {
            return next;
        }
        let mut roster = self.roster.lock();
        if !member.is_reader() && roster.standby.len() > STANDBY_KEPT {
            roster.remove_from_standby(member);
            self.note(&mut roster);
            return Next::Leave;
        }
        drop(roster);
        self.stand_by(member, None).unwrap_or(Next::Leave)
    }

    /// Sleeps until called (then a reader), dismissed, or the time is over.
    fn stand_by(&self, member: &Arc<Member>, timeout: Option<Duration>) -> Option<Next> {
        let start = Instant::now();
        loop {
            match timeout {
                Some(timeout) => {
                    let left = timeout.checked_sub(start.elapsed())?;
                    std::thread::park_timeout(left);
                }
                None => std::thread::park(),
            }
            let mut roster = self.roster.lock();
            if self.connection.control.is_stopping() {
                return Some(Next::Leave);
            }
            if member.is_reader() {
                self.note(&mut roster);
                return Some(Next::Read);
            }
        }
    }

    /// The thread of `member` is at its end.
    pub(super) fn leave(&self, member: &Arc<Member>) {
        let mut roster = self.roster.lock();
        roster.count_back(member);
        roster.remove_from_standby(member);
        roster.members.retain(|other| !Arc::ptr_eq(other, member));
        if member.is_reader() {
            roster.readers -= 1;
        }
        self.note(&mut roster);
    }

    /// Wakes everybody who sleeps in a read or stands by.
    pub(super) fn wake(&self) {
        let roster = self.roster.lock();
        for member in &roster.members {
            let Some((thread, id)) = member.thread.get() else {
                continue;
            };
            thread.unpark();
            // Those who are busy are left in peace: a signal would end the call they are in.
            if member.word.load(Ordering::SeqCst) & (READER | BUSY) == READER {
                let _ = interrupt_thread(*id);
            }
        }
        drop(roster);
        self.alarm.wake();
    }

    fn note(&self, roster: &mut Roster) {
        let levels = &self.connection.metrics().figures;
        levels
            .readers
            .store(roster.readers as u64, Ordering::Relaxed);
        let standby = roster.standby.len();
        roster.away.report(self.connection.metrics(), standby);
    }
}

/// What the steward does; its own thread is in [`super::steward`].
impl<F: FileSystem> Crew<F> {
    /// Whether a request waits to be read, by whomever.
    fn is_request_waiting(&self) -> bool {
        let mut descriptors = [PollFd::new(&self.connection.device, PollFlags::IN)];
        rustix::event::poll(&mut descriptors, Some(&Timespec::default()))
            .is_ok_and(|ready| ready > 0)
    }

    /// Whether a reader has a request.
    pub(super) fn is_busy(&self) -> bool {
        let busy = |member: &Arc<Member>| {
            member.word.load(Ordering::SeqCst) & (READER | BUSY) == READER | BUSY
        };
        self.roster.lock().members.iter().any(busy)
    }

    /// Sees to it that somebody reads. True when there was reason to worry: a reader that has not
    /// moved since the last look, or none that is idle where some are missing.
    pub(super) fn look_after(self: &Arc<Self>) -> bool {
        let mut roster = self.roster.lock();
        let (mut idle, mut moving, mut stuck) = (false, false, None);
        for member in &roster.members {
            let word = member.word.load(Ordering::SeqCst);
            match word & (READER | BUSY) {
                READER => idle = true,
                state if state & READER == 0 => {}
                _ if member.is_stuck(word, self.connection.processes()) => {
                    stuck = Some((Arc::clone(member), word));
                }
                _ => moving = true,
            }
        }
        let worry = stuck.is_some();
        if idle || self.connection.control.is_stopping() {
            return worry;
        }
        match stuck {
            Some((member, word)) if !moving => self.displace(&mut roster, &member, word),
            _ if roster.readers < roster.wanted => {
                self.call_reader(&mut roster);
            }
            _ => return worry,
        }
        self.note(&mut roster);
        true
    }

    /// Takes the role from a member that is stuck in the request it had at `word`, and gives it to
    /// another.
    fn displace(self: &Arc<Self>, roster: &mut Roster, member: &Arc<Member>, word: u64) {
        if roster.away.blocked() >= self.config.blocked_max {
            return;
        }
        let taken =
            member
                .word
                .compare_exchange(word, word & !READER, Ordering::SeqCst, Ordering::Relaxed);
        if taken.is_ok() {
            bump(&self.connection.metrics().figures.displaced);
            roster.readers -= 1;
            roster.count_away(member, Wait::Io);
            // If there is no other, the member comes back as a reader when it is done.
            self.call_reader(roster);
        }
    }
}

impl Roster {
    fn count_away(&mut self, member: &Member, wait: Wait) {
        self.away.enter(wait);
        member.away.store(away_for(wait), Ordering::Relaxed);
    }

    fn count_back(&mut self, member: &Member) {
        if let Some(wait) = waits_for(member.away.swap(HERE, Ordering::Relaxed)) {
            self.away.leave(wait);
        }
    }

    fn remove_from_standby(&mut self, member: &Arc<Member>) {
        self.standby.retain(|other| !Arc::ptr_eq(other, member));
    }
}

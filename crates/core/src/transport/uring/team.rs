//! All threads of the ring transport, and what they share.
//!
//! **Who may touch what.** A ring, and the slots on it, belong to one thread. Members are seen by
//! all: their words and counts are atomics of their own, and what is given back to them goes through
//! a lock that nobody holds for long. The roster belongs to a lock that no request takes.

use super::member::Member;
use super::plan::Group;
use super::pool::Pool;
use super::{Reading, Report};
use crate::metrics::Metrics;
use crate::session::SessionConfig;
use crate::session::control::Control;
use crate::transport::scheduling::Processes;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use thrufs_abi::NodeId;
use thrufs_sys::fuse_ring::FuseRing;

pub(super) type Ring = FuseRing<Reading>;

type Spawner = Box<dyn Fn(&Arc<Team>, Arc<Member>, Ring, Report) -> io::Result<()> + Send + Sync>;

/// See the module.
pub(super) struct Team {
    pub(super) config: SessionConfig,
    pub(super) control: Arc<Control>,
    pub(super) metrics: Arc<Metrics>,
    processes: Option<Processes>,
    /// How many requests of one queue a thread has at once.
    pub(super) depth: u16,
    /// Room for the data of a request.
    pub(super) payload_bytes: usize,
    pub(super) pool: Arc<Pool>,
    spawner: Spawner,
    roster: Mutex<Roster>,
    armed: AtomicBool,
    /// The start has failed: nobody shall serve.
    abandoned: AtomicBool,
    steward: OnceLock<Thread>,
}

#[derive(Debug, Default)]
struct Roster {
    members: Vec<Arc<Member>>,
    /// Rings for further members: made beforehand, because a confined process cannot make any.
    reserve: Vec<Ring>,
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Team")
            .field("roster", &self.roster)
            .finish_non_exhaustive()
    }
}

/// What a team is made of.
pub(super) struct Parts {
    pub(super) config: SessionConfig,
    pub(super) control: Arc<Control>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) processes: Option<Processes>,
    pub(super) depth: u16,
    pub(super) payload_bytes: usize,
    pub(super) pool: Pool,
    pub(super) spawner: Spawner,
    pub(super) reserve: Vec<Ring>,
}

impl Team {
    pub(super) fn new(parts: Parts) -> Team {
        Team {
            config: parts.config,
            control: parts.control,
            metrics: parts.metrics,
            processes: parts.processes,
            depth: parts.depth,
            payload_bytes: parts.payload_bytes,
            pool: Arc::new(parts.pool),
            spawner: parts.spawner,
            roster: Mutex::new(Roster {
                members: Vec::new(),
                reserve: parts.reserve,
            }),
            armed: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            steward: OnceLock::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A ring that nobody has.
    pub(super) fn take_ring(&self) -> Option<Ring> {
        self.lock().reserve.pop()
    }

    /// How many threads wait for requests.
    pub(super) fn len(&self) -> usize {
        self.lock().members.len()
    }

    pub(super) fn members(&self) -> Vec<Arc<Member>> {
        self.lock().members.clone()
    }

    pub(super) fn processes(&self) -> Option<BorrowedFd<'_>> {
        self.processes.as_ref().map(AsFd::as_fd)
    }

    /// Whether `member` may sleep with its only request: another of its group waits for requests
    /// meanwhile, or will in a moment.
    pub(super) fn stands_in_for(self: &Arc<Self>, member: &Arc<Member>) -> bool {
        let number = member.group_number;
        let idle = |other: &&Arc<Member>| {
            other.group_number == number && !Arc::ptr_eq(other, member) && other.is_idle()
        };
        let idle = self.lock().members.iter().filter(idle).count();
        // One is enough until it sleeps as well, which may be at once.
        let called = idle < 2
            && self.take_ring().is_some_and(|ring| {
                let added = self.add(number, &member.group, ring, None);
                added.is_ok()
            });
        idle > 0 || called
    }

    /// Regular files that the kernel asked about, or was told of.
    pub(super) fn files(&self) -> Vec<NodeId> {
        let roster = self.lock();
        let files = roster.members.iter().filter_map(|member| member.file());
        files.collect()
    }

    /// Starts a thread for the queues of a group, which tells `report` whether it serves them.
    pub(super) fn add(
        self: &Arc<Self>,
        number: usize,
        group: &Group,
        ring: Ring,
        report: Report,
    ) -> io::Result<()> {
        let member = Arc::new(Member::new(number, group.clone(), ring.waker()));
        (self.spawner)(self, Arc::clone(&member), ring, report)?;
        let mut roster = self.lock();
        roster.members.push(member);
        let count = roster.members.len();
        self.note(count);
        Ok(())
    }

    fn note(&self, members: usize) {
        let level = &self.metrics.levels.ring_threads;
        level.store(members, Ordering::Relaxed);
    }

    /// The thread of `member` is at its end.
    pub(super) fn leave(&self, member: &Arc<Member>) {
        member.end();
        let mut roster = self.lock();
        roster.members.retain(|other| !Arc::ptr_eq(other, member));
        let count = roster.members.len();
        self.note(count);
    }

    /// Has everybody see that they shall end, or that somebody waits for them.
    pub(super) fn wake(&self) {
        for member in self.members() {
            member.wake();
        }
        self.pool.wake();
        self.wake_steward();
    }

    /// Ends all threads: nothing was served yet, and nothing will be.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(super) fn is_ending(&self) -> bool {
        self.control.is_stopping() || self.abandoned.load(Ordering::Relaxed)
    }

    pub(super) fn set_steward(&self, thread: Thread) {
        let _ = self.steward.set(thread);
    }

    fn wake_steward(&self) {
        if let Some(steward) = self.steward.get() {
            steward.unpark();
        }
    }

    /// Called with every request, after [`Member::take_up`]: wakes the steward when it sleeps. It
    /// lowers its flag first and looks at the words after, so that one of the two sees the other.
    pub(super) fn arm(&self) {
        if !self.armed.load(Ordering::SeqCst) && !self.armed.swap(true, Ordering::SeqCst) {
            self.wake_steward();
        }
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst)
    }

    /// Lets the steward sleep. False when somebody is busy: it must not.
    pub(super) fn disarm(&self) -> bool {
        self.armed.store(false, Ordering::SeqCst);
        let busy = |member: &Arc<Member>| Member::is_busy(member.word());
        let busy = self.lock().members.iter().any(busy);
        if busy {
            self.armed.store(true, Ordering::SeqCst);
        }
        !busy
    }
}

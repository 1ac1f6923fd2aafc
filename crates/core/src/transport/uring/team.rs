//! All threads of the ring transport, and what they share.
//!
//! **Who may touch what.** A ring, and the slots on it, belong to one thread. Members are seen by
//! all: their words and counts are atomics of their own, and what is given back to them goes through
//! a lock that nobody holds for long. The roster belongs to a lock that no request takes.

use super::member::Member;
use super::plan::Group;
use super::{Reading, Report, Sleeping};
use crate::file_system::FileSystem;
use crate::serving::{Alarm, Pool};
use crate::transport::Connection;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thrufs_abi::NodeId;
use thrufs_sys::fuse_ring::FuseRing;

pub(super) type Ring = FuseRing<Reading>;

/// See the module.
#[derive(Debug)]
pub(super) struct Team<F> {
    pub(super) connection: Arc<Connection<F>>,
    /// How many requests of one queue a thread has at once.
    pub(super) depth: u16,
    /// Room for the data of a request.
    pub(super) payload_bytes: usize,
    pub(super) pool: Arc<Pool<Sleeping<F>>>,
    pub(super) alarm: Alarm,
    roster: Mutex<Roster>,
    /// The start has failed: nobody shall serve.
    abandoned: AtomicBool,
}

#[derive(Debug, Default)]
struct Roster {
    members: Vec<Arc<Member>>,
    /// Rings for further members: made beforehand, because a confined process cannot make any.
    reserve: Vec<Ring>,
}

impl<F> Team<F> {
    pub(super) fn new(
        connection: &Arc<Connection<F>>,
        depth: u16,
        payload_bytes: usize,
        reserve: Vec<Ring>,
    ) -> Team<F>
    where
        F: FileSystem,
    {
        let (limits, metrics) = (connection.config.limits(), Arc::clone(connection.metrics()));
        let pool = Pool::new(limits, metrics, connection.threads.clone());
        Team {
            connection: Arc::clone(connection),
            depth,
            payload_bytes,
            pool: Arc::new(pool),
            alarm: Alarm::default(),
            roster: Mutex::new(Roster {
                members: Vec::new(),
                reserve,
            }),
            abandoned: AtomicBool::new(false),
        }
    }

    /// A ring that nobody has.
    pub(super) fn take_ring(&self) -> Option<Ring> {
        self.roster.lock().reserve.pop()
    }

    /// How many threads wait for requests.
    pub(super) fn len(&self) -> usize {
        self.roster.lock().members.len()
    }

    pub(super) fn members(&self) -> Vec<Arc<Member>> {
        self.roster.lock().members.clone()
    }

    /// Regular files that the kernel asked about, or was told of.
    pub(super) fn files(&self) -> Vec<NodeId> {
        let roster = self.roster.lock();
        let files = roster.members.iter().filter_map(|member| member.file());
        files.collect()
    }

    fn note(&self, members: usize) {
        let level = &self.connection.metrics().figures.ring_threads;
        level.store(members as u64, Ordering::Relaxed);
    }

    /// The thread of `member` is at its end.
    pub(super) fn leave(&self, member: &Arc<Member>) {
        member.end();
        let mut roster = self.roster.lock();
        roster.members.retain(|other| !Arc::ptr_eq(other, member));
        let count = roster.members.len();
        self.note(count);
    }

    /// Has everybody see that they shall end.
    pub(super) fn wake(&self) {
        for member in self.members() {
            member.wake();
        }
        self.pool.begin_to_end();
        self.alarm.wake();
    }

    /// Ends all threads: nothing was served yet, and nothing will be.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(super) fn is_ending(&self) -> bool {
        self.connection.control.is_stopping() || self.abandoned.load(Ordering::Relaxed)
    }

    /// Whether somebody has a request.
    pub(super) fn is_busy(&self) -> bool {
        let busy = |member: &Arc<Member>| Member::is_busy(member.word());
        self.roster.lock().members.iter().any(busy)
    }
}

impl<F: FileSystem> Team<F> {
    /// Whether `member` may sleep with its only request: another of its group waits for requests
    /// meanwhile, or will in a moment.
    pub(super) fn stands_in_for(self: &Arc<Self>, member: &Arc<Member>) -> bool {
        let number = member.group_number;
        let idle = |other: &&Arc<Member>| {
            other.group_number == number && !Arc::ptr_eq(other, member) && other.is_idle()
        };
        let idle = self.roster.lock().members.iter().filter(idle).count();
        // One is enough until it sleeps as well, which may be at once.
        let called = idle < 2
            && self.take_ring().is_some_and(|ring| {
                let added = self.add(number, &member.group, ring, None);
                added.is_ok()
            });
        idle > 0 || called
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
        super::spawn(self, Arc::clone(&member), ring, report)?;
        let mut roster = self.roster.lock();
        roster.members.push(member);
        let count = roster.members.len();
        self.note(count);
        Ok(())
    }
}

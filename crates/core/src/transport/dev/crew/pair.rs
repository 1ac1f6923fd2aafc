//! Carries out what [`Pairing`] decides: makes a pair of one reader and its caller, follows the
//! caller from CPU to CPU, and dissolves it.

use super::{BUSY, Crew, HERE, Member, READER, Roster};
use crate::file_system::FileSystem;
use crate::metrics::bump;
use crate::transport::pairing::{Pairing, Sample};
use crate::transport::scheduling::{bind, move_to, release, time_on_cpu};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use thrufs_sys::sched::may_leave_idle;
use thrufs_sys::signal::{ThreadId, interrupt_thread};

/// The steward's part in pairing.
#[derive(Debug)]
pub(in super::super) struct Matchmaker {
    pairing: Pairing,
    possible: bool,
    pair: Option<Pair>,
    seen: Counts,
}

#[derive(Debug)]
struct Pair {
    member: Arc<Member>,
    thread: ThreadId,
    cpu: usize,
    /// The member's word at the last look.
    word: u64,
    /// When it was first seen not to move, and for how long it had run by then.
    still: Option<(Instant, Duration)>,
}

/// Sums over all members.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requests: u64,
    changes: u64,
    large: u64,
}

impl Counts {
    fn of(roster: &Roster) -> Counts {
        let mut counts = Counts::default();
        for member in &roster.members {
            counts.requests += member.asked.load(Ordering::Relaxed);
            counts.changes += member.changes.load(Ordering::Relaxed);
            counts.large += member.large.load(Ordering::Relaxed);
        }
        counts
    }
}

impl Matchmaker {
    pub(in super::super) fn new<F>(crew: &Crew<F>) -> Matchmaker {
        let several_cpus = crew.connection.allowed.count() > 1;
        let wanted =
            crew.config.threads.pair && several_cpus && crew.connection.processes.is_some();
        Matchmaker {
            pairing: Pairing::new(),
            possible: wanted && may_leave_idle(),
            pair: None,
            seen: Counts::default(),
        }
    }

    /// Looks at the crew, and makes or dissolves a pair. True while a pair is at work: it must not
    /// go unwatched.
    pub(in super::super) fn look<F: FileSystem>(
        &mut self,
        crew: &Arc<Crew<F>>,
        now: Instant,
    ) -> bool {
        if !self.possible {
            return false;
        }
        let roster = crew.roster.lock();
        let sample = self.see(&roster);
        drop(roster);
        let Some(pair) = &mut self.pair else {
            if self.pairing.should_pair(sample, now) {
                self.pair = crew.make_pair();
                match self.pair {
                    Some(_) => self.pairing.paired(now),
                    None => self.pairing.failed(now),
                }
            }
            return self.pair.is_some();
        };
        let stalled = pair.has_stalled(crew, now);
        let parts = !pair.member.is_reader()
            || self.pairing.should_unpair(sample, stalled)
            || pair.follow_caller(crew).is_err();
        if parts {
            self.part(crew);
            self.pairing.failed(now);
            return false;
        }
        crew.call_off_others();
        sample.requests > 0
    }

    /// Dissolves the pair, if there is one: nobody will look for a while, or any more.
    pub(in super::super) fn rest<F: FileSystem>(&mut self, crew: &Arc<Crew<F>>) {
        if self.pair.is_some() {
            self.part(crew);
            self.pairing.ended();
        }
    }

    fn see(&mut self, roster: &Roster) -> Sample {
        let counts = Counts::of(roster);
        let seen = std::mem::replace(&mut self.seen, counts);
        // A member that has left takes its part of the sum along.
        Sample {
            requests: counts.requests.saturating_sub(seen.requests),
            changes: counts.changes.saturating_sub(seen.changes),
            large: counts.large.saturating_sub(seen.large),
            sleeping: roster.away.blocked() > 0,
        }
    }

    fn part<F: FileSystem>(&mut self, crew: &Arc<Crew<F>>) {
        if let Some(pair) = self.pair.take() {
            release(pair.thread, &crew.connection.allowed);
            crew.readers_as_many_as(crew.readers_wanted);
        }
    }
}

impl Pair {
    /// Whether the member has work, has not moved for two looks, and did not run for most of that
    /// time either: a long request is no stall.
    fn has_stalled<F: FileSystem>(&mut self, crew: &Crew<F>, now: Instant) -> bool {
        let word = self.member.word.load(Ordering::SeqCst);
        let moved = std::mem::replace(&mut self.word, word) != word;
        let before = self.still.take();
        if moved || word & BUSY == 0 && !crew.is_request_waiting() {
            return false;
        }
        let processes = crew.connection.processes();
        let run = processes.and_then(|processes| time_on_cpu(processes, self.thread));
        let run = run.unwrap_or_default();
        self.still = Some((now, run));
        before.is_some_and(|(then, run_then)| {
            run.saturating_sub(run_then) < now.duration_since(then) / 2
        })
    }

    fn follow_caller<F>(&mut self, crew: &Crew<F>) -> rustix::io::Result<()> {
        let caller = self.member.caller.load(Ordering::Relaxed);
        let processes = crew.connection.processes.as_ref();
        let cpu = processes.and_then(|processes| processes.cpu_of_caller(caller));
        // A caller that has ended is followed by another, or by nobody.
        match cpu {
            Some(cpu) if cpu != self.cpu => {
                self.cpu = cpu;
                move_to(self.thread, cpu)
            }
            _ => Ok(()),
        }
    }
}

impl<F: FileSystem> Crew<F> {
    /// Makes one reader the only one, where its caller is.
    fn make_pair(self: &Arc<Self>) -> Option<Pair> {
        let processes = self.connection.processes.as_ref()?;
        let mut members = self.roster.lock().members.clone();
        members.retain(|member| member.is_reader());
        // Each has its own last caller, who may be gone by now.
        let (member, thread, cpu) = members.into_iter().find_map(|member| {
            let (_, thread) = *member.thread.get()?;
            let cpu = processes.cpu_of_caller(member.caller.load(Ordering::Relaxed))?;
            Some((member, thread, cpu))
        })?;
        if bind(thread, cpu).is_err() {
            release(thread, &self.connection.allowed);
            return None;
        }
        let mut roster = self.roster.lock();
        if !member.is_reader() {
            // It has gone to sleep in a request meanwhile: the others are needed.
            drop(roster);
            release(thread, &self.connection.allowed);
            return None;
        }
        roster.wanted = 1;
        for other in &roster.members.clone() {
            if !Arc::ptr_eq(other, &member) && other.take_role() {
                roster.readers -= 1;
            }
        }
        self.note(&mut roster);
        drop(roster);
        self.call_off_others();
        bump(&self.connection.metrics().figures.pairs);
        Some(Pair {
            word: member.word.load(Ordering::Relaxed),
            still: None,
            member,
            thread,
            cpu,
        })
    }

    /// Interrupts the reading of those who are no longer readers. One that is about to read at this
    /// moment is not reached, and is called off at the next look, or serves one request more.
    fn call_off_others(&self) {
        let roster = self.roster.lock();
        for member in &roster.members {
            let idle = member.word.load(Ordering::SeqCst) & (READER | BUSY) == 0;
            let here = member.away.load(Ordering::Relaxed) == HERE;
            let stands_by = || {
                roster
                    .standby
                    .iter()
                    .any(|other| Arc::ptr_eq(other, member))
            };
            if idle
                && here
                && !stands_by()
                && let Some((_, id)) = member.thread.get()
            {
                let _ = interrupt_thread(*id);
            }
        }
    }

    fn readers_as_many_as(self: &Arc<Self>, wanted: usize) {
        let mut roster = self.roster.lock();
        roster.wanted = wanted;
        let missing =
            |roster: &Roster| roster.readers < wanted && !self.connection.control.is_stopping();
        while missing(&roster) && self.call_reader(&mut roster) {}
        self.note(&mut roster);
    }
}

impl Member {
    /// Takes the role of reader away, busy or not. False when it had none.
    fn take_role(&self) -> bool {
        self.word.fetch_and(!READER, Ordering::SeqCst) & READER != 0
    }
}

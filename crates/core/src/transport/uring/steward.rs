//! Looks after the threads of the rings, every 2 ms while there is something to do.
//!
//! **Together.** A thread is bound to the CPU of its callers. While they ask much and in small pieces,
//! it is in the class `SCHED_IDLE` besides, so that a caller finds its CPU idle when it is answered,
//! and stays ([`crate::transport::pairing`] says why). Such a thread gives way to everything else: when
//! it is kept from its work, it is made an ordinary one again, for a rest that grows.
//!
//! **Stuck.** When all threads of a queue sleep in requests of which nobody expected it, another is
//! put in, of which there is a reserve. It stays.

use super::member::Member;
use super::team::Team;
use crate::file_system::FileSystem;
use crate::metrics::bump;
use crate::serving::{Alarm, Counted, LOOK_INTERVAL, Monitor, start_monitor};
use crate::transport::pairing::{Pairing, Sample};
use crate::transport::{Connection, scheduling};
use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thrufs_sys::sched::{Class, may_leave_idle, set_class};
use thrufs_sys::signal::ThreadId;

/// So many looks at one request that does not sleep, and it takes too long all the same.
const RUNNING_LOOKS: u32 = 5;

pub(super) fn start<F: FileSystem>(team: &Arc<Team<F>>) -> io::Result<()> {
    let connection = &team.connection;
    let wanted = connection.config.threads.pair && connection.processes.is_some();
    let steward = Steward {
        team: Arc::clone(team),
        wards: Vec::new(),
        may_pair: wanted && may_leave_idle(),
        _count: connection.control.thread(),
    };
    start_monitor(&team.alarm, steward).map(drop)
}

/// Where a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Bound to its callers' CPU, an ordinary thread.
    Near,
    /// Bound, and giving way.
    Together,
}

/// One member, and what was seen of it.
struct Ward {
    member: Arc<Member>,
    thread: ThreadId,
    pairing: Pairing,
    place: Place,
    counts: (u64, u64),
    word: u64,
    same: u32,
    /// How long it has run, and waited for a CPU.
    time: (Duration, Duration),
}

struct Steward<F> {
    team: Arc<Team<F>>,
    wards: Vec<Ward>,
    may_pair: bool,
    /// Last: whoever sees no thread left may rely on that.
    _count: Counted,
}

impl<F: FileSystem> Monitor for Steward<F> {
    fn alarm(&self) -> &Alarm {
        &self.team.alarm
    }

    fn is_ending(&self) -> bool {
        self.team.is_ending()
    }

    fn look(&mut self, now: Instant) -> bool {
        self.meet_new_members();
        let mut busy = false;
        for ward in &mut self.wards {
            let sample = ward.see();
            busy |= sample.requests > 0 || ward.same > 0;
            if ward.member.group.cpu.is_some() {
                ward.find_place(&self.team.connection, sample, self.may_pair, now);
            }
        }
        self.help_the_stuck();
        busy
    }

    /// Makes everybody an ordinary thread again.
    fn rest(&mut self) {
        for ward in &mut self.wards {
            ward.go(Place::Near);
            ward.pairing.ended();
        }
    }

    fn is_needed(&self) -> bool {
        self.team.is_busy()
    }
}

impl<F: FileSystem> Steward<F> {
    fn meet_new_members(&mut self) {
        self.wards.retain(|ward| !ward.member.is_gone());
        if self.wards.len() == self.team.len() {
            return;
        }
        for member in self.team.members() {
            let known = |ward: &Ward| Arc::ptr_eq(&ward.member, &member);
            if let Some(thread) = member.thread()
                && !self.wards.iter().any(known)
            {
                self.wards.push(Ward::new(member, thread));
            }
        }
    }

    /// Puts another thread in where all of a group are stuck.
    fn help_the_stuck(&mut self) {
        let mut groups: HashMap<usize, bool> = HashMap::new();
        for ward in &self.wards {
            let stuck = ward.is_stuck(self.team.connection.processes());
            let all = groups.entry(ward.member.group_number).or_insert(true);
            *all &= stuck;
        }
        for (number, _) in groups.into_iter().filter(|(_, stuck)| *stuck) {
            let Some(ward) = self
                .wards
                .iter()
                .find(|ward| ward.member.group_number == number)
            else {
                continue;
            };
            let Some(ring) = self.team.take_ring() else {
                continue;
            };
            bump(&self.team.connection.metrics().figures.displaced);
            if let Err(error) = self.team.add(number, &ward.member.group, ring, None) {
                tracing::debug!(%error, "no further thread");
            }
        }
    }
}

impl Ward {
    fn new(member: Arc<Member>, thread: ThreadId) -> Ward {
        Ward {
            counts: member.counts(),
            word: member.word(),
            member,
            thread,
            pairing: Pairing::new(),
            place: Place::Near,
            same: 0,
            time: (Duration::ZERO, Duration::ZERO),
        }
    }

    fn see(&mut self) -> Sample {
        let (requests, large) = self.member.counts();
        let before = std::mem::replace(&mut self.counts, (requests, large));
        let word = self.member.word();
        let same = std::mem::replace(&mut self.word, word) == word && Member::is_busy(word);
        self.same = if same { self.same + 1 } else { 0 };
        Sample {
            requests: requests - before.0,
            changes: 0,
            large: large - before.1,
            sleeping: false,
        }
    }

    fn find_place<F>(
        &mut self,
        connection: &Connection<F>,
        sample: Sample,
        may_pair: bool,
        now: Instant,
    ) {
        match self.place {
            Place::Together => {
                let kept = self.is_kept_from_work(connection.processes());
                if self.pairing.should_unpair(sample, kept) {
                    self.pairing.failed(now);
                    self.go(Place::Near);
                } else if sample.requests == 0 {
                    // Whoever calls next finds an ordinary thread: this one could starve unseen.
                    self.go(Place::Near);
                    self.pairing.ended();
                }
            }
            Place::Near if may_pair && self.pairing.should_pair(sample, now) => {
                self.go(Place::Together);
                self.pairing.paired(now);
                self.is_kept_from_work(connection.processes());
                bump(&connection.metrics().figures.pairs);
            }
            Place::Near => {}
        }
    }

    /// Whether it has waited for its CPU for longer than it ran since the last look.
    fn is_kept_from_work(&mut self, processes: Option<BorrowedFd<'_>>) -> bool {
        let time = processes.and_then(|processes| scheduling::times(processes, self.thread));
        let Some(time) = time else {
            return false;
        };
        let before = std::mem::replace(&mut self.time, time);
        let (run, waited) = (time.0 - before.0, time.1.saturating_sub(before.1));
        waited > run && waited > LOOK_INTERVAL / 2
    }

    fn is_stuck(&self, processes: Option<BorrowedFd<'_>>) -> bool {
        self.same > 0
            && (self.same >= RUNNING_LOOKS || !scheduling::wants_cpu(processes, self.thread))
    }

    fn go(&mut self, place: Place) {
        let (Some(cpu), true) = (self.member.group.cpu, place != self.place) else {
            return;
        };
        let moved = match place {
            Place::Together => scheduling::bind(self.thread, cpu),
            Place::Near => set_class(self.thread, Class::Prompt),
        };
        if let Err(error) = moved {
            tracing::debug!(%error, ?place, "cannot move a thread");
        }
        self.place = place;
    }
}

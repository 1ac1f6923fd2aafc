//! Looks after the threads of the rings, every 2 ms while there is something to do.
//!
//! **Together.** A thread is bound to the CPU of its callers. While they ask much and in small pieces,
//! it is in the class `SCHED_IDLE` besides, so that a caller finds its CPU idle when it is answered,
//! and stays ([`crate::transport::pairing`] says why). Such a thread gives way to everything else: when
//! it is kept from its work, it is made an ordinary one again, for a rest that grows.
//!
//! **Stuck.** When all threads of a queue sleep in requests of which nobody expected it, another is
//! put in, of which there is a reserve. It stays.

use super::worker::Worker;
use super::worker_pool::WorkerPool;
use crate::file_system::FileSystem;
use crate::metrics::bump;
use crate::serving::{LOOK_INTERVAL, LiveGuard, MonitorWaker, StallMonitor, start_stall_monitor};
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

pub(super) fn start<F: FileSystem>(pool: &Arc<WorkerPool<F>>) -> io::Result<()> {
    let connection = &pool.connection;
    let wanted = connection.config.threads.pair && connection.processes.is_some();
    let monitor = RingMonitor {
        pool: Arc::clone(pool),
        threads: Vec::new(),
        may_pair: wanted && may_leave_idle(),
        _count: connection.control.thread(),
    };
    start_stall_monitor(&pool.alarm, monitor).map(drop)
}

/// Where a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Bound to its callers' CPU, an ordinary thread.
    Near,
    /// Bound, and giving way.
    Together,
}

/// One worker, and what was seen of it.
struct MonitoredThread {
    worker: Arc<Worker>,
    id: ThreadId,
    pairing: Pairing,
    place: Place,
    counts: (u64, u64),
    word: u64,
    same: u32,
    /// How long it has run, and waited for a CPU.
    time: (Duration, Duration),
}

struct RingMonitor<F> {
    pool: Arc<WorkerPool<F>>,
    threads: Vec<MonitoredThread>,
    may_pair: bool,
    /// Last: whoever sees no thread left may rely on that.
    _count: LiveGuard,
}

impl<F: FileSystem> StallMonitor for RingMonitor<F> {
    fn alarm(&self) -> &MonitorWaker {
        &self.pool.alarm
    }

    fn is_ending(&self) -> bool {
        self.pool.is_ending()
    }

    fn look(&mut self, now: Instant) -> bool {
        self.add_new_threads();
        let mut busy = false;
        for thread in &mut self.threads {
            let sample = thread.take_sample();
            busy |= sample.requests > 0 || thread.same > 0;
            if thread.worker.group.cpu.is_some() {
                thread.find_place(&self.pool.connection, sample, self.may_pair, now);
            }
        }
        self.replace_stuck();
        busy
    }

    /// Makes everybody an ordinary thread again.
    fn rest(&mut self) {
        for thread in &mut self.threads {
            thread.go(Place::Near);
            thread.pairing.ended();
        }
    }

    fn is_needed(&self) -> bool {
        self.pool.is_busy()
    }
}

impl<F: FileSystem> RingMonitor<F> {
    fn add_new_threads(&mut self) {
        self.threads.retain(|thread| !thread.worker.is_gone());
        if self.threads.len() == self.pool.len() {
            return;
        }
        for worker in self.pool.workers() {
            let known = |thread: &MonitoredThread| Arc::ptr_eq(&thread.worker, &worker);
            if let Some(id) = worker.thread()
                && !self.threads.iter().any(known)
            {
                self.threads.push(MonitoredThread::new(worker, id));
            }
        }
    }

    /// Puts another thread in where all of a group are stuck.
    fn replace_stuck(&mut self) {
        let mut groups: HashMap<usize, bool> = HashMap::new();
        for thread in &self.threads {
            let stuck = thread.is_stuck(self.pool.connection.processes());
            let all = groups.entry(thread.worker.group_number).or_insert(true);
            *all &= stuck;
        }
        for (number, _) in groups.into_iter().filter(|(_, stuck)| *stuck) {
            let Some(thread) = self
                .threads
                .iter()
                .find(|thread| thread.worker.group_number == number)
            else {
                continue;
            };
            let Some(ring) = self.pool.take_ring() else {
                continue;
            };
            bump(&self.pool.connection.metrics().figures.displaced);
            if let Err(error) = self.pool.add(number, &thread.worker.group, ring, None) {
                tracing::debug!(%error, "no further thread");
            }
        }
    }
}

impl MonitoredThread {
    fn new(worker: Arc<Worker>, id: ThreadId) -> MonitoredThread {
        MonitoredThread {
            counts: worker.counts(),
            word: worker.word(),
            worker,
            id,
            pairing: Pairing::new(),
            place: Place::Near,
            same: 0,
            time: (Duration::ZERO, Duration::ZERO),
        }
    }

    fn take_sample(&mut self) -> Sample {
        let (requests, large) = self.worker.counts();
        let before = std::mem::replace(&mut self.counts, (requests, large));
        let word = self.worker.word();
        let same = std::mem::replace(&mut self.word, word) == word && Worker::is_busy(word);
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
        let time = processes.and_then(|processes| scheduling::times(processes, self.id));
        let Some(time) = time else {
            return false;
        };
        let before = std::mem::replace(&mut self.time, time);
        let (run, waited) = (time.0 - before.0, time.1.saturating_sub(before.1));
        waited > run && waited > LOOK_INTERVAL / 2
    }

    fn is_stuck(&self, processes: Option<BorrowedFd<'_>>) -> bool {
        self.same > 0 && (self.same >= RUNNING_LOOKS || !scheduling::wants_cpu(processes, self.id))
    }

    fn go(&mut self, place: Place) {
        let (Some(cpu), true) = (self.worker.group.cpu, place != self.place) else {
            return;
        };
        let moved = match place {
            Place::Together => scheduling::bind(self.id, cpu),
            Place::Near => set_class(self.id, Class::Prompt),
        };
        if let Err(error) = moved {
            tracing::debug!(%error, ?place, "a thread stays where it is");
        }
        self.place = place;
    }
}

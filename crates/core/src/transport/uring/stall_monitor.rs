//! The stall monitor of the threads that serve rings; looks every 2 ms while there are requests.
//!
//! **Pairing.** A thread is bound to its callers' CPU. While they send many small requests, it is in the
//! class `SCHED_IDLE` besides, so that a caller that is answered stays on that CPU
//! ([`crate::serving::Pairing`]). Such a thread gives way to everything else: when others keep it from
//! running, it is returned to the ordinary class, for a rest that grows.
//!
//! **Large requests.** While those of one CPU alone are served and most have much data, the threads of its queue may
//! run on all CPUs: one copies while the caller uses what came before.
//!
//! **Stalls.** When all threads of a queue sleep unexpectedly, another is started, with a ring of the
//! reserve. It stays.

use super::worker::Worker;
use super::worker_pool::WorkerPool;
use crate::file_system::FileSystem;
use crate::metrics::bump;
use crate::serving::scheduling::{self, Processes};
use crate::serving::{
    LOOK_INTERVAL, LiveGuard, Monitor, MonitorWaker, Pairing, Sample, start_monitor,
};
use crate::transport::Connection;
use rustix::thread::CpuSet;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thrufs_sys::sched::{Class, may_leave_idle, set_class};
use thrufs_sys::signal::ThreadId;

/// After so many looks at one request that computes, it is treated as one that sleeps.
const RUNNING_LOOKS: u32 = 5;

pub(super) fn start<F: FileSystem>(pool: &Arc<WorkerPool<F>>) -> io::Result<()> {
    let connection = &pool.connection;
    let wanted = connection.config.threads.pair && connection.processes.show_callers();
    let monitor = RingMonitor {
        pool: Arc::clone(pool),
        threads: Vec::new(),
        may_pair: wanted && may_leave_idle(),
        _count: connection.control.thread(),
    };
    start_monitor(&pool.monitor_waker, monitor).map(drop)
}

/// A worker's thread, and the last sample of it.
struct MonitoredThread {
    worker: Arc<Worker>,
    id: ThreadId,
    pairing: Pairing,
    /// It is in the class `SCHED_IDLE`, besides being bound to its callers' CPU.
    is_paired: bool,
    /// It may run on all CPUs.
    is_free: bool,
    counts: (u64, u64),
    word: u64,
    same: u32,
    /// Its time on a CPU, and its time of waiting for one.
    time: (Duration, Duration),
}

struct RingMonitor<F> {
    pool: Arc<WorkerPool<F>>,
    threads: Vec<MonitoredThread>,
    may_pair: bool,
    /// Last: a count of zero means that all has been dropped.
    _count: LiveGuard,
}

impl<F: FileSystem> Monitor for RingMonitor<F> {
    fn waker(&self) -> &MonitorWaker {
        &self.pool.monitor_waker
    }

    fn is_ending(&self) -> bool {
        self.pool.is_ending()
    }

    fn look(&mut self, now: Instant) -> bool {
        self.add_new_threads();
        let mut busy = false;
        let mut asked = HashSet::new();
        let connection = &self.pool.connection;
        let take_sample = |thread: &mut MonitoredThread| {
            let sample = thread.take_sample();
            if sample.requests > 0 {
                asked.insert(thread.worker.group_number);
            }
            sample
        };
        let samples: Vec<_> = self.threads.iter_mut().map(take_sample).collect();
        for (thread, sample) in self.threads.iter_mut().zip(samples) {
            busy |= sample.requests > 0 || thread.same > 0;
            if thread.worker.group.cpu.is_some() {
                thread.pair_or_unpair(connection, sample, self.may_pair, now);
                let mostly_large = sample.large * 2 > sample.requests;
                if sample.requests > 0 {
                    thread.set_free(mostly_large && asked.len() == 1, &connection.allowed);
                }
            }
        }
        self.replace_stuck();
        busy
    }

    /// Returns all threads to the ordinary class, and to their CPUs.
    fn rest(&mut self) {
        for thread in &mut self.threads {
            thread.set_paired(false);
            thread.set_free(false, &self.pool.connection.allowed);
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

    /// Starts another thread for each group that has only stuck threads.
    fn replace_stuck(&mut self) {
        let processes = &self.pool.connection.processes;
        let is_stuck = |thread: &&MonitoredThread| thread.is_stuck(processes);
        let (stuck, others): (Vec<_>, Vec<_>) = self.threads.iter().partition(is_stuck);
        let number_of = |thread: &MonitoredThread| thread.worker.group_number;
        let mut served: HashSet<usize> = others.into_iter().map(number_of).collect();
        for thread in stuck {
            let number = number_of(thread);
            if served.insert(number)
                && let Some(ring) = self.pool.take_ring()
            {
                bump(&self.pool.connection.metrics().figures.displaced);
                if let Err(error) = self.pool.add(number, &thread.worker.group, ring, None) {
                    tracing::debug!(%error, "no further thread");
                }
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
            is_paired: false,
            is_free: false,
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

    fn pair_or_unpair<F>(
        &mut self,
        connection: &Connection<F>,
        sample: Sample,
        may_pair: bool,
        now: Instant,
    ) {
        if self.is_paired {
            let kept = self.is_kept_from_work(&connection.processes);
            if self.pairing.should_unpair(sample, kept) {
                self.pairing.failed(now);
                self.set_paired(false);
            } else if sample.requests == 0 {
                // Other threads of this CPU could starve it before the next caller's request, unseen.
                self.set_paired(false);
                self.pairing.ended();
            }
        } else if may_pair && self.pairing.should_pair(sample, now) {
            self.set_paired(true);
            self.pairing.paired(now);
            self.is_kept_from_work(&connection.processes);
            bump(&connection.metrics().figures.pairs);
        }
    }

    /// Whether it waited for its CPU for longer than it ran since the last look.
    fn is_kept_from_work(&mut self, processes: &Processes) -> bool {
        let Some(time) = processes.times(self.id) else {
            return false;
        };
        let before = std::mem::replace(&mut self.time, time);
        let (run, waited) = (time.0 - before.0, time.1.saturating_sub(before.1));
        waited > run && waited > LOOK_INTERVAL / 2
    }

    fn is_stuck(&self, processes: &Processes) -> bool {
        self.same > 0 && (self.same >= RUNNING_LOOKS || !processes.wants_cpu(self.id))
    }

    fn set_free(&mut self, free: bool, allowed: &CpuSet) {
        let free = free && !self.is_paired;
        let (Some(cpu), true) = (self.worker.group.cpu, free != self.is_free) else {
            return;
        };
        match free {
            true => scheduling::release(self.id, allowed),
            // EINVAL: the CPU is offline now.
            false => drop(scheduling::move_to(self.id, cpu)),
        }
        self.is_free = free;
    }

    fn set_paired(&mut self, paired: bool) {
        let (Some(cpu), true) = (self.worker.group.cpu, paired != self.is_paired) else {
            return;
        };
        let moved = match paired {
            true => scheduling::bind(self.id, cpu),
            false => set_class(self.id, Class::Prompt),
        };
        if let Err(error) = moved {
            tracing::debug!(%error, paired, "cannot move a thread");
        }
        self.is_paired = paired;
    }
}

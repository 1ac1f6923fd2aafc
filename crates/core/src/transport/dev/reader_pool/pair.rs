//! Carries out what [`Pairing`] decides: pairs one reader with its caller, follows the caller from CPU to
//! CPU, and dissolves the pair.

use super::{BUSY, Load, READER, ReaderPool, Worker, WorkerList};
use crate::file_system::FileSystem;
use crate::metrics::bump;
use crate::serving::{Pairing, Sample, bind, move_to, release};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use thrufs_sys::sched::may_leave_idle;
use thrufs_sys::signal::{ThreadId, interrupt_thread};

/// The monitor's state of pairing.
#[derive(Debug)]
pub(in super::super) struct ReaderPairing {
    pairing: Pairing,
    possible: bool,
    pair: Option<Pair>,
    seen: Counts,
}

#[derive(Debug)]
struct Pair {
    worker: Arc<Worker>,
    thread: ThreadId,
    cpu: usize,
    word: u64,
    /// When it first did not move, and its CPU time then.
    still: Option<(Instant, Duration)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requests: u64,
    changes: u64,
    large: u64,
}

impl Counts {
    fn of(list: &WorkerList) -> Counts {
        let mut counts = Counts::default();
        for worker in &list.workers {
            counts.requests += worker.asked.load(Ordering::Relaxed);
            counts.changes += worker.changes.load(Ordering::Relaxed);
            counts.large += worker.large.load(Ordering::Relaxed);
        }
        counts
    }
}

impl ReaderPairing {
    pub(in super::super) fn new<F>(pool: &ReaderPool<F>) -> ReaderPairing {
        let several_cpus = pool.connection.allowed.count() > 1;
        let wanted = pool.load == Load::All
            && pool.connection.config.threads.pair
            && several_cpus
            && pool.connection.processes.show_callers();
        ReaderPairing {
            pairing: Pairing::new(),
            possible: wanted && may_leave_idle(),
            pair: None,
            seen: Counts::default(),
        }
    }

    /// Takes a sample, and makes or dissolves a pair. True while a pair is at work, which must be monitored.
    pub(in super::super) fn look<F: FileSystem>(
        &mut self,
        pool: &Arc<ReaderPool<F>>,
        now: Instant,
    ) -> bool {
        if !self.possible {
            return false;
        }
        let list = pool.list.lock();
        let sample = self.take_sample(&list);
        drop(list);
        let Some(pair) = &mut self.pair else {
            if self.pairing.should_pair(sample, now) {
                self.pair = pool.make_pair();
                match self.pair {
                    Some(_) => self.pairing.paired(now),
                    None => self.pairing.failed(now),
                }
            }
            return self.pair.is_some();
        };
        let stalled = pair.has_stalled(pool, now);
        let dissolves = !pair.worker.is_reader()
            || self.pairing.should_unpair(sample, stalled)
            || pair.follow_caller(pool).is_err();
        if dissolves {
            self.dissolve(pool);
            self.pairing.failed(now);
            return false;
        }
        pool.interrupt_others();
        sample.requests > 0
    }

    /// Dissolves the pair, if there is one: the monitor is about to sleep or to end.
    pub(in super::super) fn rest<F: FileSystem>(&mut self, pool: &Arc<ReaderPool<F>>) {
        if self.pair.is_some() {
            self.dissolve(pool);
            self.pairing.ended();
        }
    }

    fn take_sample(&mut self, list: &WorkerList) -> Sample {
        let counts = Counts::of(list);
        let seen = std::mem::replace(&mut self.seen, counts);
        // The sum is smaller when a worker has left.
        Sample {
            requests: counts.requests.saturating_sub(seen.requests),
            changes: counts.changes.saturating_sub(seen.changes),
            large: counts.large.saturating_sub(seen.large),
            sleeping: list.blocked.io_count() > 0,
        }
    }

    fn dissolve<F: FileSystem>(&mut self, pool: &Arc<ReaderPool<F>>) {
        if let Some(pair) = self.pair.take() {
            release(pair.thread, &pool.connection.allowed);
            pool.set_reader_count(pool.readers_wanted);
        }
    }
}

impl Pair {
    /// Whether the worker has a request, has not moved for two looks, and did not run for most of that
    /// time: a long computation is no stall.
    fn has_stalled<F: FileSystem>(&mut self, pool: &ReaderPool<F>, now: Instant) -> bool {
        let word = self.worker.word.load(Ordering::SeqCst);
        let moved = std::mem::replace(&mut self.word, word) != word;
        let before = self.still.take();
        if moved || word & BUSY == 0 && !pool.has_pending_request() {
            return false;
        }
        let times = pool.connection.processes.times(self.thread);
        let (run, _) = times.unwrap_or_default();
        self.still = Some((now, run));
        before.is_some_and(|(then, run_then)| {
            run.saturating_sub(run_then) < now.duration_since(then) / 2
        })
    }

    fn follow_caller<F>(&mut self, pool: &ReaderPool<F>) -> rustix::io::Result<()> {
        let caller = self.worker.caller.load(Ordering::Relaxed);
        // A caller that has ended has no CPU.
        match pool.connection.processes.cpu_of_caller(caller) {
            Some(cpu) if cpu != self.cpu => {
                self.cpu = cpu;
                move_to(self.thread, cpu)
            }
            _ => Ok(()),
        }
    }
}

impl<F: FileSystem> ReaderPool<F> {
    /// Makes one reader the only one, on its caller's CPU.
    fn make_pair(self: &Arc<Self>) -> Option<Pair> {
        let processes = &self.connection.processes;
        let mut workers = self.list.lock().workers.clone();
        workers.retain(|worker| worker.is_reader());
        // A reader's last caller may have ended.
        let (worker, thread, cpu) = workers.into_iter().find_map(|worker| {
            let (_, thread) = *worker.thread.get()?;
            let cpu = processes.cpu_of_caller(worker.caller.load(Ordering::Relaxed))?;
            Some((worker, thread, cpu))
        })?;
        if bind(thread, cpu).is_err() {
            release(thread, &self.connection.allowed);
            return None;
        }
        let mut list = self.list.lock();
        if !worker.is_reader() {
            // It has blocked meanwhile: the others are needed.
            drop(list);
            release(thread, &self.connection.allowed);
            return None;
        }
        list.wanted = 1;
        for other in &list.workers.clone() {
            if !Arc::ptr_eq(other, &worker) && other.take_role() {
                list.readers -= 1;
            }
        }
        self.note(&mut list);
        drop(list);
        self.interrupt_others();
        bump(&self.connection.metrics().figures.pairs);
        Some(Pair {
            word: worker.word.load(Ordering::Relaxed),
            still: None,
            worker,
            thread,
            cpu,
        })
    }

    /// Interrupts the reads of workers that are no readers any more. One that is about to read is missed; it
    /// is interrupted at the next look, or serves one more request.
    fn interrupt_others(&self) {
        let list = self.list.lock();
        for worker in &list.workers {
            let idle = worker.word.load(Ordering::SeqCst) & (READER | BUSY) == 0;
            let stands_by = || list.standby.iter().any(|other| Arc::ptr_eq(other, worker));
            if idle
                && !list.is_blocked(worker)
                && !stands_by()
                && let Some((_, id)) = worker.thread.get()
            {
                let _ = interrupt_thread(*id);
            }
        }
    }

    fn set_reader_count(self: &Arc<Self>, wanted: usize) {
        let mut list = self.list.lock();
        list.wanted = wanted;
        let missing =
            |list: &WorkerList| list.readers < wanted && !self.connection.control.is_stopping();
        while missing(&list) && self.call_reader(&mut list) {}
        self.note(&mut list);
    }
}

impl Worker {
    /// Takes the reader's role, busy or not. False when it had none.
    fn take_role(&self) -> bool {
        self.word.fetch_and(!READER, Ordering::SeqCst) & READER != 0
    }
}

//! Pairs queue threads with the virtual CPUs that call them; samples every 2 ms while requests come.
//!
//! A virtual CPU that sends one request at a time never runs in parallel with the queue's thread, and each
//! wakes the other's CPU for every request and reply. So the queue's thread is bound to the caller's CPU in
//! the class SCHED_IDLE ([`Pairing`] decides, as for mounts). A queue with several requests in flight is not
//! paired: both sides work in parallel.
//!
//! A paired thread yields to every other task on that CPU and could starve. So it is unpaired as soon as it
//! serves nothing; when that happens early, starvation is assumed and pairing backs off.

use crate::callers::{Busy, Caller, Callers};
use crate::queue_state::LARGE_BYTES;
use crate::slot::Slot;
use parking_lot::Mutex;
use rustix::thread::CpuSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thrufs::Metrics;
use thrufs::serving::{
    Monitor, MonitorWaker, Pairing, Sample, allowed_cpus, bind, move_to, release, start_monitor,
};
use thrufs_sys::sched::may_leave_idle;
use thrufs_sys::signal::{ThreadId, current_thread_id};

/// A pair that has served for so long is idle when it serves nothing, not starved.
const SETTLED: Duration = Duration::from_millis(20);

/// Counters that a queue's thread publishes, in cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Pulse {
    requests: AtomicU64,
    /// Of these, taken right after another.
    together: AtomicU64,
    /// Of these, with much data.
    large: AtomicU64,
    awake: AtomicBool,
    /// The thread does not end while this is locked.
    thread: Mutex<Option<ThreadId>>,
}

impl Pulse {
    fn counts(&self) -> [u64; 3] {
        [&self.requests, &self.together, &self.large].map(|count| count.load(Ordering::Relaxed))
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Batch {
    pub(crate) requests: u64,
    /// Of these, with much data.
    pub(crate) large: u64,
}

impl Batch {
    pub(crate) fn count(&mut self, slot: &Slot) {
        self.requests += 1;
        self.large += u64::from(slot.bytes() >= LARGE_BYTES);
    }
}

/// State that the stall monitor and the queue threads share.
#[derive(Debug)]
pub(crate) struct Watch {
    allowed: CpuSet,
    pulses: Vec<Pulse>,
    /// Has a monitor only where threads can be paired.
    alarm: MonitorWaker,
    ending: AtomicBool,
    awake_helpers: AtomicUsize,
}

impl Watch {
    pub(crate) fn new(queues: usize) -> Watch {
        Watch {
            allowed: allowed_cpus(),
            pulses: (0..queues).map(|_| Pulse::default()).collect(),
            alarm: MonitorWaker::default(),
            ending: AtomicBool::new(false),
            awake_helpers: AtomicUsize::new(0),
        }
    }

    /// Registers the calling thread as that of this queue.
    pub(crate) fn begin_queue(&self, number: usize) {
        *self.pulses[number].thread.lock() = Some(current_thread_id());
        self.set_awake(number, true);
    }

    pub(crate) fn end_queue(&self, number: usize) {
        *self.pulses[number].thread.lock() = None;
        self.set_awake(number, false);
        release(current_thread_id(), &self.allowed);
    }

    pub(crate) fn set_awake(&self, number: usize, awake: bool) {
        self.pulses[number].awake.store(awake, Ordering::Relaxed);
    }

    /// Counts the calling helper as awake until the result is dropped.
    pub(crate) fn begin_helper(&self) -> AwakeHelper<'_> {
        self.awake_helpers.fetch_add(1, Ordering::Relaxed);
        AwakeHelper(self)
    }

    /// Whether one more thread may be awake: half of the CPUs are left to the guest.
    pub(crate) fn has_room(&self) -> bool {
        let is_awake = |pulse: &&Pulse| pulse.awake.load(Ordering::Relaxed);
        // Not the high-priority queue: it sleeps for FORGETs while it counts as awake.
        let requests = self.pulses.iter().skip(1);
        let awake = requests.filter(is_awake).count();
        awake + self.awake_helpers.load(Ordering::Relaxed) < self.room_max()
    }

    /// Most threads that should be awake.
    pub(crate) fn room_max(&self) -> usize {
        self.allowed.count() as usize / 2
    }

    /// Adds what the queue's thread has served, and arms the monitor.
    pub(crate) fn note(&self, number: usize, batch: Batch) {
        if !self.alarm.has_monitor() {
            return;
        }
        let pulse = &self.pulses[number];
        // A single writer needs no atomic addition.
        let add = |counter: &AtomicU64, number: u64| {
            counter.store(counter.load(Ordering::Relaxed) + number, Ordering::Relaxed);
        };
        add(&pulse.requests, batch.requests);
        add(&pulse.together, batch.requests.saturating_sub(1));
        add(&pulse.large, batch.large);
        // If this races with the monitor falling asleep, the next batch arms it.
        self.alarm.arm();
    }
}

#[derive(Debug)]
pub(crate) struct AwakeHelper<'a>(&'a Watch);

impl Drop for AwakeHelper<'_> {
    fn drop(&mut self) {
        self.0.awake_helpers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The monitor of a connection. Its thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct StallMonitor {
    watch: Arc<Watch>,
    thread: Option<JoinHandle<()>>,
}

impl StallMonitor {
    /// `None` without callers, or where threads cannot be paired.
    pub(crate) fn start(
        watch: Arc<Watch>,
        callers: Vec<Caller>,
        metrics: Arc<Metrics>,
    ) -> Option<StallMonitor> {
        if callers.is_empty() || !may_leave_idle() {
            return None;
        }
        let round = Round {
            watch: Arc::clone(&watch),
            callers: Callers::new(callers),
            monitored: watch
                .pulses
                .iter()
                .map(|_| MonitoredThread::new())
                .collect(),
            metrics,
        };
        let thread = start_monitor(&watch.alarm, round)
            .inspect_err(|error| tracing::debug!(%error, "cannot start the stall monitor"))
            .ok()?;
        Some(StallMonitor {
            watch,
            thread: Some(thread),
        })
    }
}

impl Drop for StallMonitor {
    fn drop(&mut self) {
        self.watch.ending.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

struct MonitoredThread {
    pairing: Pairing,
    counts: [u64; 3],
    pair: Option<Pair>,
}

/// A queue's thread bound to the CPU of a caller.
#[derive(Clone, Copy, Debug)]
struct Pair {
    thread: ThreadId,
    caller: usize,
    cpu: usize,
    since: Instant,
}

impl MonitoredThread {
    fn new() -> MonitoredThread {
        MonitoredThread {
            pairing: Pairing::new(),
            counts: [0; 3],
            pair: None,
        }
    }

    fn see(&mut self, pulse: &Pulse) -> Sample {
        let now = pulse.counts();
        let before = std::mem::replace(&mut self.counts, now);
        let [requests, together, large] = [0, 1, 2].map(|at: usize| now[at] - before[at]);
        Sample {
            requests,
            // A caller that does not wait for its reply counts as several.
            changes: together,
            large,
            sleeping: false,
        }
    }
}

struct Round {
    watch: Arc<Watch>,
    callers: Callers,
    monitored: Vec<MonitoredThread>,
    metrics: Arc<Metrics>,
}

impl Monitor for Round {
    fn waker(&self) -> &MonitorWaker {
        &self.watch.alarm
    }

    fn is_ending(&self) -> bool {
        self.watch.ending.load(Ordering::SeqCst)
    }

    fn look(&mut self, now: Instant) -> bool {
        let mut busy = false;
        for number in 0..self.monitored.len() {
            let sample = self.monitored[number].see(&self.watch.pulses[number]);
            busy |= sample.requests > 0;
            if let Some(pair) = self.monitored[number].pair {
                self.look_at_pair(number, pair, sample, now);
            } else if self.monitored[number].pairing.should_pair(sample, now) {
                self.try_to_pair(number, now);
            }
        }
        busy
    }

    fn rest(&mut self) {
        (0..self.monitored.len()).for_each(|number| self.unpair(number));
        // Run times from before the pause do not show which caller is served after it.
        self.callers.forget();
    }
}

impl Round {
    fn try_to_pair(&mut self, number: usize, now: Instant) {
        let pair = match self.callers.the_busy_one() {
            Busy::NotKnownYet => return,
            Busy::One(caller) => self.pair(number, caller, now),
            Busy::NotOne => None,
        };
        self.callers.forget();
        let monitored = &mut self.monitored[number];
        monitored.pair = pair;
        if pair.is_some() {
            monitored.pairing.paired(now);
            self.metrics.count_pair();
        } else {
            monitored.pairing.failed(now);
        }
    }

    fn pair(&self, number: usize, caller: usize, now: Instant) -> Option<Pair> {
        let cpu = self.callers.cpu(caller)?;
        let thread = self.watch.pulses[number].thread.lock();
        let thread = (*thread)?;
        if !self.watch.allowed.is_set(cpu) {
            return None;
        }
        if let Err(error) = bind(thread, cpu) {
            tracing::debug!(%error, cpu, "cannot move to the caller's CPU");
            release(thread, &self.watch.allowed);
            return None;
        }
        Some(Pair {
            thread,
            caller,
            cpu,
            since: now,
        })
    }

    fn look_at_pair(&mut self, number: usize, pair: Pair, sample: Sample, now: Instant) {
        // Otherwise the queue was stopped; it may have a new thread.
        let lives = *self.watch.pulses[number].thread.lock() == Some(pair.thread);
        let idle = sample.requests == 0;
        let starves = idle && now.duration_since(pair.since) < SETTLED;
        let pairing = &mut self.monitored[number].pairing;
        if lives && (pairing.should_unpair(sample, false) || starves) {
            pairing.failed(now);
            self.unpair(number);
        } else if idle || !lives {
            // Unpaired while idle: the monitor sleeps then, and would not see it starve.
            pairing.ended();
            self.unpair(number);
        } else {
            self.follow(number, pair);
        }
    }

    /// Moves the thread to the caller's current CPU.
    fn follow(&mut self, number: usize, pair: Pair) {
        let Some(cpu) = self.callers.cpu(pair.caller).filter(|cpu| *cpu != pair.cpu) else {
            return;
        };
        let thread = self.watch.pulses[number].thread.lock();
        if *thread == Some(pair.thread) && move_to(pair.thread, cpu).is_ok() {
            self.monitored[number].pair = Some(Pair { cpu, ..pair });
        }
    }

    fn unpair(&mut self, number: usize) {
        let Some(pair) = self.monitored[number].pair.take() else {
            return;
        };
        let thread = self.watch.pulses[number].thread.lock();
        if *thread == Some(pair.thread) {
            release(pair.thread, &self.watch.allowed);
        }
    }
}

#[cfg(test)]
mod tests;

//! Looks after the threads of the queues, every 2 ms while there is something to do.
//!
//! Where one virtual CPU asks one thing after another, it and the queue's thread never work at the same
//! time, and wake each other's CPU with every request and every reply. Then the queue's thread is bound
//! to the CPU of who asks, in a class that gives way to it ([`Pairing`] decides, as it does for
//! mounts). A queue with more than one request at a time is not for that: both sides work at once.
//!
//! Such a thread gives way to everything else on that CPU, too. One that serves nothing is set free at
//! once; when that comes soon, something else may have kept it from its work, and it rests.

use crate::callers::{Busy, Caller, Callers};
use crate::desk::LARGE_BYTES;
use crate::slot::Slot;
use parking_lot::Mutex;
use rustix::thread::CpuSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thrufs::Metrics;
use thrufs::serving::{
    Alarm, Monitor, Pairing, Sample, allowed_cpus, bind, move_to, release, start_monitor,
};
use thrufs_sys::sched::may_leave_idle;
use thrufs_sys::signal::{ThreadId, current_thread_id};

/// A pair that has served for so long and has nothing to do has nothing to do.
const SETTLED: Duration = Duration::from_millis(20);

/// What the thread of a queue says of itself. Each has a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Pulse {
    requests: AtomicU64,
    /// Of them, taken while another was in hand.
    together: AtomicU64,
    /// Of them, with much data.
    large: AtomicU64,
    /// Whether its thread is awake.
    awake: AtomicBool,
    /// While there is one. It does not end while this is locked.
    thread: Mutex<Option<ThreadId>>,
}

impl Pulse {
    fn counts(&self) -> [u64; 3] {
        [&self.requests, &self.together, &self.large].map(|count| count.load(Ordering::Relaxed))
    }
}

/// What the thread of a queue has done in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Row {
    pub(crate) requests: u64,
    /// Of them, with much data.
    pub(crate) large: u64,
}

impl Row {
    /// Counts one more.
    pub(crate) fn count(&mut self, slot: &Slot) {
        self.requests += 1;
        self.large += u64::from(slot.bytes() >= LARGE_BYTES);
    }
}

/// What stewards and the threads of queues share.
#[derive(Debug)]
pub(crate) struct Watch {
    allowed: CpuSet,
    pulses: Vec<Pulse>,
    /// There is a steward where threads can be paired.
    alarm: Alarm,
    ending: AtomicBool,
    /// Threads of crews that are awake.
    mates: AtomicUsize,
}

impl Watch {
    /// For so many queues.
    pub(crate) fn new(queues: usize) -> Watch {
        Watch {
            allowed: allowed_cpus(),
            pulses: (0..queues).map(|_| Pulse::default()).collect(),
            alarm: Alarm::default(),
            ending: AtomicBool::new(false),
            mates: AtomicUsize::new(0),
        }
    }

    /// The calling thread serves this queue from now on.
    pub(crate) fn begin_queue(&self, number: usize) {
        if let Some(pulse) = self.pulses.get(number) {
            *pulse.thread.lock() = Some(current_thread_id());
        }
        self.set_awake(number, true);
    }

    /// The calling thread serves this queue no longer.
    pub(crate) fn end_queue(&self, number: usize) {
        if let Some(pulse) = self.pulses.get(number) {
            *pulse.thread.lock() = None;
        }
        self.set_awake(number, false);
        release(current_thread_id(), &self.allowed);
    }

    /// Says whether the thread of this queue is awake.
    pub(crate) fn set_awake(&self, number: usize, awake: bool) {
        if let Some(pulse) = self.pulses.get(number) {
            pulse.awake.store(awake, Ordering::Relaxed);
        }
    }

    /// A thread of a crew is awake from now on, until what is returned is dropped.
    pub(crate) fn wake_mate(&self) -> AwakeMate<'_> {
        self.mates.fetch_add(1, Ordering::Relaxed);
        AwakeMate(self)
    }

    /// Whether one more thread may be awake: half of the CPUs are for those who ask.
    pub(crate) fn has_room(&self) -> bool {
        let is_awake = |pulse: &&Pulse| pulse.awake.load(Ordering::Relaxed);
        // That for FORGETs has little to do, and is awake meanwhile.
        let requests = self.pulses.iter().skip(1);
        let awake = requests.filter(is_awake).count();
        awake + self.mates.load(Ordering::Relaxed) < self.room_max()
    }

    /// Most threads that are to be awake, if one can help it.
    pub(crate) fn room_max(&self) -> usize {
        self.allowed.count() as usize / 2
    }

    /// The thread of this queue has served some requests, one after the other.
    pub(crate) fn note(&self, number: usize, row: Row) {
        let Some(pulse) = self.pulses.get(number).filter(|_| self.alarm.has_monitor()) else {
            return;
        };
        // One thread writes, so no locked instruction is needed.
        let add = |counter: &AtomicU64, number: u64| {
            counter.store(counter.load(Ordering::Relaxed) + number, Ordering::Relaxed);
        };
        add(&pulse.requests, row.requests);
        add(&pulse.together, row.requests.saturating_sub(1));
        add(&pulse.large, row.large);
        // One that is missed while the steward falls asleep is made up for by the next.
        self.alarm.arm();
    }
}

/// A thread of a crew that is awake.
#[derive(Debug)]
pub(crate) struct AwakeMate<'a>(&'a Watch);

impl Drop for AwakeMate<'_> {
    fn drop(&mut self) {
        self.0.mates.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The steward of a connection. Its thread ends with this.
#[derive(Debug)]
pub(crate) struct Steward {
    watch: Arc<Watch>,
    thread: Option<JoinHandle<()>>,
}

impl Steward {
    /// Starts one, if there are callers and threads can be paired here.
    pub(crate) fn start(
        watch: Arc<Watch>,
        callers: Vec<Caller>,
        metrics: Arc<Metrics>,
    ) -> Option<Steward> {
        if callers.is_empty() || !may_leave_idle() {
            return None;
        }
        let round = Round {
            watch: Arc::clone(&watch),
            callers: Callers::new(callers),
            wards: watch.pulses.iter().map(|_| Ward::new()).collect(),
            metrics,
        };
        let thread = start_monitor(&watch.alarm, round)
            .inspect_err(|error| tracing::debug!(%error, "cannot start the stall monitor"))
            .ok()?;
        Some(Steward {
            watch,
            thread: Some(thread),
        })
    }
}

impl Drop for Steward {
    fn drop(&mut self) {
        self.watch.ending.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// What the steward knows of the thread of a queue.
struct Ward {
    pairing: Pairing,
    counts: [u64; 3],
    pair: Option<Pair>,
}

/// A queue's thread that shares a CPU.
#[derive(Clone, Copy, Debug)]
struct Pair {
    thread: ThreadId,
    /// The number of the caller.
    caller: usize,
    cpu: usize,
    since: Instant,
}

impl Ward {
    fn new() -> Ward {
        Ward {
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
            // Who asks before the answer to the last is there is as good as several.
            changes: together,
            large,
            sleeping: false,
        }
    }
}

struct Round {
    watch: Arc<Watch>,
    callers: Callers,
    wards: Vec<Ward>,
    metrics: Arc<Metrics>,
}

impl Monitor for Round {
    fn alarm(&self) -> &Alarm {
        &self.watch.alarm
    }

    fn is_ending(&self) -> bool {
        self.watch.ending.load(Ordering::SeqCst)
    }

    fn look(&mut self, now: Instant) -> bool {
        let mut busy = false;
        for number in 0..self.wards.len() {
            let sample = self.wards[number].see(&self.watch.pulses[number]);
            busy |= sample.requests > 0;
            if let Some(pair) = self.wards[number].pair {
                self.look_at_pair(number, pair, sample, now);
            } else if self.wards[number].pairing.should_pair(sample, now) {
                self.try_to_pair(number, now);
            }
        }
        busy
    }

    fn rest(&mut self) {
        (0..self.wards.len()).for_each(|number| self.part(number));
        // What callers do until somebody looks again says nothing of whom is answered then.
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
        let ward = &mut self.wards[number];
        ward.pair = pair;
        if pair.is_some() {
            ward.pairing.paired(now);
            self.metrics.count_pair();
        } else {
            ward.pairing.failed(now);
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
        if *self.watch.pulses[number].thread.lock() != Some(pair.thread) {
            // The queue was stopped; another thread may serve it now.
            let ward = &mut self.wards[number];
            ward.pair = None;
            ward.pairing.ended();
            return;
        }
        let idle = sample.requests == 0;
        let pairing = &mut self.wards[number].pairing;
        if pairing.should_unpair(sample, false) || idle && now.duration_since(pair.since) < SETTLED
        {
            pairing.failed(now);
            self.part(number);
        } else if idle {
            // Whoever calls next finds an ordinary thread: this one could starve unseen.
            pairing.ended();
            self.part(number);
        } else {
            self.follow(number, pair);
        }
    }

    /// Goes where the caller has gone.
    fn follow(&mut self, number: usize, pair: Pair) {
        let Some(cpu) = self.callers.cpu(pair.caller).filter(|cpu| *cpu != pair.cpu) else {
            return;
        };
        let thread = self.watch.pulses[number].thread.lock();
        if *thread == Some(pair.thread) && move_to(pair.thread, cpu).is_ok() {
            self.wards[number].pair = Some(Pair { cpu, ..pair });
        }
    }

    /// Makes the thread of a queue an ordinary one again.
    fn part(&mut self, number: usize) {
        let Some(pair) = self.wards[number].pair.take() else {
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

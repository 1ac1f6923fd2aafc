//! Threads for requests that sleep.
//!
//! A request that would sleep leaves its queue's thread with the memory it lies in, is carried out here,
//! and goes back with its reply, because only the queue's thread answers its requests. Requests that wait
//! for a lock, perhaps for ever, have bounds of their own, so that they do not keep others out.

use super::blocked_counts::{BlockedCounts, BlockingLimits};
use super::live_count::LiveCount;
use super::threads::ServingThreads;
use crate::dispatch::Wait;
use crate::metrics::Metrics;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an idle thread stays.
const KEEP_THREAD: Duration = Duration::from_secs(10);
/// So many idle threads never end: the next request that sleeps needs no new thread.
const KEPT: usize = 2;

/// A request that will sleep.
pub trait BlockingJob: Send + 'static {
    /// What it sleeps for.
    fn wait(&self) -> Wait;

    /// Carries it out to its end. The returned call gives it back, once it does not count as blocked any
    /// more.
    fn run(self) -> impl FnOnce();
}

/// See the module.
#[derive(Debug)]
pub struct BlockingPool<J> {
    limits: BlockingLimits,
    metrics: Arc<Metrics>,
    threads: ServingThreads,
    count: Arc<LiveCount>,
    state: Mutex<State<J>>,
    called: Condvar,
}

#[derive(Debug)]
struct State<J> {
    jobs: VecDeque<J>,
    idle: usize,
    blocked: BlockedCounts,
    ending: bool,
}

impl<J> BlockingPool<J> {
    /// A pool without threads: they start with the first requests.
    pub fn new(
        limits: BlockingLimits,
        metrics: Arc<Metrics>,
        threads: ServingThreads,
    ) -> BlockingPool<J> {
        BlockingPool {
            limits,
            metrics,
            threads,
            count: Arc::default(),
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                idle: 0,
                blocked: BlockedCounts::default(),
                ending: false,
            }),
            called: Condvar::new(),
        }
    }

    fn enter(&self, state: &mut State<J>, wait: Wait) {
        state.blocked.enter(wait);
        self.note(state);
    }

    /// Counts a request that will sleep on the caller's thread. False when too many are blocked.
    pub fn admit(&self, wait: Wait) -> bool {
        let mut state = self.state.lock();
        let admitted = state.blocked.admits(wait, self.limits);
        if admitted {
            self.enter(&mut state, wait);
        }
        admitted
    }

    /// The request that [`admit`](Self::admit) counted has ended.
    pub fn dismiss(&self, wait: Wait) {
        let mut state = self.state.lock();
        state.blocked.leave(wait);
        self.note(&mut state);
    }

    fn note(&self, state: &mut State<J>) {
        state.blocked.report(&self.metrics, state.idle);
    }

    /// Waits until no request is blocked, calling `wake` again and again. False when some still are at
    /// `deadline`.
    pub fn drain(&self, deadline: Instant, wake: impl Fn()) -> bool {
        const INTERVAL: Duration = Duration::from_millis(1);
        while !self.state.lock().blocked.is_empty() {
            if Instant::now() >= deadline {
                return false;
            }
            wake();
            std::thread::sleep(INTERVAL);
        }
        true
    }

    /// Refuses further requests, and ends idle threads.
    pub fn begin_to_end(&self) {
        self.state.lock().ending = true;
        self.called.notify_all();
    }

    /// Refuses further requests, and waits for those in progress until `deadline`. Returns how many threads
    /// are left.
    pub fn end(&self, deadline: Instant) -> usize {
        self.begin_to_end();
        self.count.wait_for_none(deadline)
    }

    fn next_job(&self) -> Option<J> {
        let mut state = self.state.lock();
        state.idle += 1;
        self.note(&mut state);
        let job = loop {
            if let Some(job) = state.jobs.pop_front() {
                break Some(job);
            }
            if state.ending {
                break None;
            }
            let waited = self.called.wait_for(&mut state, KEEP_THREAD);
            if waited.timed_out() && state.jobs.is_empty() && state.idle > KEPT {
                break None;
            }
        };
        state.idle -= 1;
        self.note(&mut state);
        job
    }
}

impl<J: BlockingJob> BlockingPool<J> {
    /// Takes a request over.
    ///
    /// # Errors
    /// The request, when too many are blocked, or no thread is available.
    pub fn take(self: &Arc<Self>, job: J) -> Result<(), J> {
        let (mut state, wait) = (self.state.lock(), job.wait());
        if state.ending || !state.blocked.admits(wait, self.limits) {
            return Err(job);
        }
        if state.idle <= state.jobs.len() && self.spawn().is_err() {
            return Err(job);
        }
        state.jobs.push_back(job);
        self.enter(&mut state, wait);
        drop(state);
        self.called.notify_one();
        Ok(())
    }

    fn spawn(self: &Arc<Self>) -> io::Result<()> {
        let (pool, count) = (Arc::clone(self), self.count.one_more());
        std::thread::Builder::new()
            .name("thrufs-blocking".to_owned())
            .spawn(move || {
                let _count = count;
                let _serving = pool.threads.begin();
                while let Some(job) = pool.next_job() {
                    let wait = job.wait();
                    let give_back = job.run();
                    pool.dismiss(wait);
                    give_back();
                }
            })
            .map(drop)
    }
}

//! Threads for requests that sleep.
//!
//! A request that says it would sleep leaves the thread of its queue with the memory it lies in, is
//! carried out here, and goes back with its reply, because only the thread that has a ring may send
//! on it. Those who wait for a lock are counted apart: they may wait for ever, and must not keep
//! others out.

use super::member::Member;
use crate::dispatch::Wait;
use crate::metrics::Metrics;
use crate::session::control::Control;
use crate::session::{End, SessionConfig};
use crate::sleepers::Sleepers;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thrufs_sys::fuse_ring::Slot;

/// How long a thread without work stays.
const KEEP_THREAD: Duration = Duration::from_secs(10);
/// This many stay for ever, so that the next request that sleeps need not wait for a thread.
const KEPT: usize = 2;

/// A request that will sleep.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) slot: Slot,
    pub(super) wait: Wait,
    /// Whose it is.
    pub(super) member: Arc<Member>,
}

type Answer = Box<dyn Fn(&mut Slot) -> usize + Send + Sync>;
type Begin = Box<dyn Fn() + Send + Sync>;

/// See the module.
pub(super) struct Pool {
    config: SessionConfig,
    control: Arc<Control>,
    metrics: Arc<Metrics>,
    /// Called by each thread first.
    begin: Begin,
    /// Carries out a request, and returns the length of its reply.
    answer: Answer,
    state: Mutex<State>,
    called: Condvar,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Threads that wait for a job.
    idle: usize,
    sleepers: Sleepers,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Pool {
    pub(super) fn new(
        config: SessionConfig,
        control: Arc<Control>,
        metrics: Arc<Metrics>,
        begin: Begin,
        answer: Answer,
    ) -> Pool {
        Pool {
            config,
            control,
            metrics,
            begin,
            answer,
            state: Mutex::default(),
            called: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admits(&self, state: &State, wait: Wait) -> bool {
        let (blocked, lock_waiters) = (self.config.blocked_max, self.config.lock_waiters_max);
        state.sleepers.admits(wait, blocked, lock_waiters)
    }

    /// Takes a request over.
    ///
    /// # Errors
    ///
    /// The request, when so many sleep already, or no thread is to be had.
    pub(super) fn take(self: &Arc<Self>, job: Job) -> Result<(), Job> {
        let mut state = self.lock();
        let spawns = state.idle <= state.jobs.len();
        if !self.admits(&state, job.wait) || spawns && self.spawn().is_err() {
            return Err(job);
        }
        state.sleepers.enter(job.wait);
        state.jobs.push_back(job);
        self.note(&mut state);
        drop(state);
        self.called.notify_one();
        Ok(())
    }

    /// Counts a request that will sleep on a thread of its own. False when so many sleep already.
    pub(super) fn admit(&self, wait: Wait) -> bool {
        let mut state = self.lock();
        let admitted = self.admits(&state, wait);
        if admitted {
            state.sleepers.enter(wait);
            self.note(&mut state);
        }
        admitted
    }

    /// It sleeps no more.
    pub(super) fn dismiss(&self, wait: Wait) {
        let mut state = self.lock();
        state.sleepers.leave(wait);
        self.note(&mut state);
    }

    fn spawn(self: &Arc<Self>) -> io::Result<()> {
        let count = self.control.thread();
        let pool = Arc::clone(self);
        std::thread::Builder::new()
            .name("thrufs-aside".to_owned())
            .spawn(move || {
                (pool.begin)();
                let _count = count;
                let guard = EndOnPanic(&pool.control);
                pool.work();
                drop(guard);
            })
            .map(drop)
    }

    fn work(&self) {
        while let Some(mut job) = self.next_job() {
            let length = (self.answer)(&mut job.slot);
            self.dismiss(job.wait);
            job.member.give_back(job.slot, length);
        }
    }

    fn next_job(&self) -> Option<Job> {
        let mut state = self.lock();
        state.idle += 1;
        self.note(&mut state);
        let job = loop {
            if let Some(job) = state.jobs.pop_front() {
                break Some(job);
            }
            if self.control.is_stopping() {
                break None;
            }
            let waited = self.called.wait_timeout(state, KEEP_THREAD);
            let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = next;
            if timeout.timed_out() && state.jobs.is_empty() && state.idle > KEPT {
                break None;
            }
        };
        state.idle -= 1;
        self.note(&mut state);
        job
    }

    /// Has threads without work see that the session ends.
    pub(super) fn wake(&self) {
        drop(self.lock());
        self.called.notify_all();
    }

    fn note(&self, state: &mut State) {
        state.sleepers.report(&self.metrics, state.idle);
    }
}

/// Ends the session when its thread panics: requests would never be answered.
pub(super) struct EndOnPanic<'a>(pub(super) &'a Control);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop(End::Failed(libc::EIO));
        }
    }
}

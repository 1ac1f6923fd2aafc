//! Threads for requests that sleep, of all queues of a connection.
//!
//! A request that says it would sleep leaves the thread of its queue with the memory it lies in, is
//! carried out here, and goes back: only the thread of a queue writes to its rings. Those who wait for
//! a lock are counted apart: they may wait for ever, and must not keep others out.

use crate::line::{CutOnPanic, Line};
use crate::post::{Post, Returned};
use crate::session::GuestSession;
use crate::slot::Slot;
use crate::steward::Watch;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thrufs::{FileReply, FileSystem, Metrics, Outcome, Sleepers, Wait};

/// How long a thread without work stays.
const KEEP_THREAD: Duration = Duration::from_secs(10);
/// This many stay, so that the next request that sleeps need not wait for a thread.
const KEPT: usize = 2;

/// A request that will sleep.
pub(crate) struct Job<F: FileSystem> {
    pub(crate) slot: Slot,
    pub(crate) wait: Wait,
    /// Whose request it is.
    pub(crate) session: Arc<GuestSession<F>>,
    /// Where it goes back to.
    pub(crate) post: Arc<Post>,
    /// It was carried out but for the bytes of this.
    pub(crate) file_reply: Option<FileReply>,
}

impl<F: FileSystem> Job<F> {
    /// Carries it out to its end, sleeping where needed. The session is let go before anybody hears of
    /// the result.
    pub(crate) fn run(mut self) -> Returned {
        let dispatcher = self.session.dispatcher();
        let length = match &self.file_reply {
            None => {
                // Nothing was done yet; what could be seen without sleeping may have been nothing.
                self.slot.begin(dispatcher, true);
                self.slot.answer(dispatcher)
            }
            Some(file_reply) => {
                let sent = self.slot.send_file(dispatcher, file_reply, true);
                sent.unwrap_or(0)
            }
        };
        self.slot.answered(length);
        Returned {
            slot: self.slot,
            length,
        }
    }
}

/// What has become of a request.
pub(crate) enum Carried<F: FileSystem> {
    /// It was carried out.
    Out(Returned),
    /// It would sleep.
    Asleep(Job<F>),
}

/// Carries out a request that was read, unless it would sleep.
pub(crate) fn carry_out<F: FileSystem>(
    session: &Arc<GuestSession<F>>,
    post: &Arc<Post>,
    metrics: &Metrics,
    mut slot: Slot,
) -> Carried<F> {
    let dispatcher = session.dispatcher();
    slot.begin(dispatcher, false);
    let (wait, file_reply) = match slot.dispatch(dispatcher, false) {
        Outcome::Reply(length) => {
            let length = slot.send(dispatcher, length);
            return Carried::Out(Returned { slot, length });
        }
        Outcome::Silent => return Carried::Out(Returned { slot, length: 0 }),
        Outcome::Defer(wait) => (wait, None),
        Outcome::File(file_reply) => match slot.send_file(dispatcher, &file_reply, false) {
            Ok(length) => return Carried::Out(Returned { slot, length }),
            Err(_) => {
                metrics.count_deferred();
                (Wait::Io, Some(file_reply))
            }
        },
    };
    Carried::Asleep(Job {
        slot,
        wait,
        session: Arc::clone(session),
        post: Arc::clone(post),
        file_reply,
    })
}

/// How many may sleep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) blocked_max: usize,
    pub(crate) lock_waiters_max: usize,
}

/// See the module.
pub(crate) struct Pool<F: FileSystem> {
    limits: Limits,
    metrics: Arc<Metrics>,
    line: Arc<Line>,
    watch: Arc<Watch>,
    state: Mutex<State<F>>,
    called: Condvar,
    left: Condvar,
}

struct State<F: FileSystem> {
    jobs: VecDeque<Job<F>>,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
    sleepers: Sleepers,
    ending: bool,
}

impl<F: FileSystem> Pool<F> {
    pub(crate) fn new(
        limits: Limits,
        metrics: Arc<Metrics>,
        line: Arc<Line>,
        watch: Arc<Watch>,
    ) -> Pool<F> {
        Pool {
            limits,
            metrics,
            line,
            watch,
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                threads: 0,
                idle: 0,
                sleepers: Sleepers::default(),
                ending: false,
            }),
            called: Condvar::new(),
            left: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<F>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request over.
    ///
    /// # Errors
    ///
    /// The request, when so many sleep already, or no thread is to be had.
    pub(crate) fn take(self: &Arc<Self>, job: Job<F>) -> Result<(), Box<Job<F>>> {
        let mut state = self.lock();
        let (blocked, lock_waiters) = (self.limits.blocked_max, self.limits.lock_waiters_max);
        if state.ending || !state.sleepers.admits(job.wait, blocked, lock_waiters) {
            return Err(Box::new(job));
        }
        if state.idle <= state.jobs.len() {
            if self.spawn().is_err() {
                return Err(Box::new(job));
            }
            state.threads += 1;
        }
        state.sleepers.enter(job.wait);
        state.jobs.push_back(job);
        self.note(&mut state);
        drop(state);
        self.called.notify_one();
        Ok(())
    }

    fn spawn(self: &Arc<Self>) -> std::io::Result<()> {
        let pool = Arc::clone(self);
        std::thread::Builder::new()
            .name("thrufs-aside".to_owned())
            .spawn(move || {
                thrufs::begin_serving_thread();
                pool.watch.begin_thread();
                let leaving = Leaving(&pool);
                let cut = CutOnPanic(&pool.line);
                pool.work();
                drop((cut, leaving));
            })
            .map(drop)
    }

    fn work(&self) {
        while let Some(job) = self.next_job() {
            let (wait, post) = (job.wait, Arc::clone(&job.post));
            let returned = job.run();
            let mut state = self.lock();
            state.sleepers.leave(wait);
            self.note(&mut state);
            drop(state);
            post.give_back(returned);
        }
    }

    fn next_job(&self) -> Option<Job<F>> {
        let mut state = self.lock();
        state.idle += 1;
        self.note(&mut state);
        let job = loop {
            if let Some(job) = state.jobs.pop_front() {
                break Some(job);
            }
            if state.ending {
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

    fn note(&self, state: &mut State<F>) {
        state.sleepers.report(&self.metrics, state.idle);
    }

    /// Waits until nobody sleeps, calling `wake` again and again, until `deadline`. False when somebody
    /// still does.
    pub(crate) fn drain(&self, deadline: Instant, wake: impl Fn()) -> bool {
        const INTERVAL: Duration = Duration::from_millis(1);
        loop {
            {
                let state = self.lock();
                if state.sleepers.is_empty() {
                    return true;
                }
            }
            if Instant::now() >= deadline {
                return false;
            }
            wake();
            std::thread::sleep(INTERVAL);
        }
    }

    /// Takes no more, and waits for those that were taken until `deadline`. Returns how many threads are
    /// left.
    pub(crate) fn end(&self, deadline: Instant) -> usize {
        let mut state = self.lock();
        state.ending = true;
        self.called.notify_all();
        while state.threads > 0 {
            let patience = deadline.saturating_duration_since(Instant::now());
            if patience.is_zero() {
                break;
            }
            let waited = self.left.wait_timeout(state, patience);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.threads
    }
}

/// Takes a thread off the count, however it ends.
struct Leaving<'a, F: FileSystem>(&'a Pool<F>);

impl<F: FileSystem> Drop for Leaving<'_, F> {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
        self.0.left.notify_all();
    }
}

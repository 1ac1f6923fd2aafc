//! Threads for requests that sleep.
//!
//! A request that would sleep leaves its queue's thread with the memory it lies in, is carried out here,
//! and goes back with its reply, because only the queue's thread answers its requests. Requests that wait
//! for a lock, perhaps for ever, have bounds of their own, so that they do not keep others out.

use super::blocked_counts::{BlockedCounts, BlockingLimits, count_refused};
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
    /// The request, when too many are blocked, or no thread is available. It is counted as one that its
    /// queue's thread refuses if it is for a lock, and carries out itself if it is not.
    pub fn take(self: &Arc<Self>, job: J) -> Result<(), J> {
        self.try_to_take(job)
            .inspect_err(|job| count_refused(&self.metrics, job.wait()))
    }

    fn try_to_take(self: &Arc<Self>, job: J) -> Result<(), J> {
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

#[cfg(test)]
mod tests {
    use super::super::scheduling::allowed_cpus;
    use super::super::threads::OnPanic;
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Sleeps until its sender is dropped, and reports that it was given back.
    #[derive(Debug)]
    struct Job {
        wait: Wait,
        until: Receiver<()>,
        back: Sender<Wait>,
        panics: bool,
    }

    impl BlockingJob for Job {
        fn wait(&self) -> Wait {
            self.wait
        }

        fn run(self) -> impl FnOnce() {
            let _ = self.until.recv();
            assert!(!self.panics, "as the test wants it");
            move || {
                let _ = self.back.send(self.wait);
            }
        }
    }

    #[derive(Debug)]
    struct Owner(Sender<()>);

    impl OnPanic for Owner {
        fn panicked(&self) {
            let _ = self.0.send(());
        }
    }

    struct Ground {
        pool: Arc<BlockingPool<Job>>,
        metrics: Arc<Metrics>,
        back: Sender<Wait>,
        given_back: Receiver<Wait>,
        panicked: Receiver<()>,
    }

    impl Ground {
        fn new(blocked_max: usize, lock_waiters_max: usize) -> Ground {
            let limits = BlockingLimits {
                blocked_max,
                lock_waiters_max,
            };
            let metrics = Arc::<Metrics>::default();
            let (owner, panicked) = channel();
            let threads = ServingThreads::new(allowed_cpus(), Arc::new(Owner(owner)));
            let (back, given_back) = channel();
            Ground {
                pool: Arc::new(BlockingPool::new(limits, Arc::clone(&metrics), threads)),
                metrics,
                back,
                given_back,
                panicked,
            }
        }

        /// Whether the pool takes a job, and what ends its sleep.
        fn take(&self, wait: Wait, panics: bool) -> (bool, Sender<()>) {
            let (end, until) = channel();
            let job = Job {
                wait,
                until,
                back: self.back.clone(),
                panics,
            };
            (self.pool.take(job).is_ok(), end)
        }
    }

    const SOON: Duration = Duration::from_secs(60);
    const LOCK: Wait = Wait::Lock { uid: 0 };

    #[test]
    fn requests_beyond_the_bounds_are_returned_and_counted() {
        let ground = Ground::new(1, 1);
        let (io, end_io) = ground.take(Wait::Io, false);
        let (lock, end_lock) = ground.take(LOCK, false);
        assert!(io && lock && !ground.take(Wait::Io, false).0 && !ground.take(LOCK, false).0);
        let seen = ground.metrics.snapshot();
        assert_eq!((seen.blocked, seen.lock_waiters), (1, 1));
        assert_eq!((seen.blocked_inline, seen.lock_waiters_refused), (1, 1));
        assert!(
            !ground.pool.drain(Instant::now(), || ()),
            "both still sleep"
        );
        drop(end_io);
        assert_eq!(ground.given_back.recv_timeout(SOON), Ok(Wait::Io));
        assert_eq!(
            ground.metrics.snapshot().blocked,
            0,
            "before it was given back"
        );
        drop(end_lock);
        assert!(ground.pool.drain(Instant::now() + SOON, || ()));
        assert_eq!(ground.pool.end(Instant::now() + SOON), 0);
        assert!(!ground.take(Wait::Io, false).0, "it has ended");
    }

    #[test]
    fn idle_threads_take_the_next_request_and_end_with_the_pool() {
        let ground = Ground::new(8, 0);
        let sleeping: Vec<_> = (0..3).map(|_| ground.take(Wait::Io, false)).collect();
        drop(sleeping);
        for _ in 0..3 {
            ground.given_back.recv_timeout(SOON).unwrap();
        }
        let deadline = Instant::now() + SOON;
        while ground.metrics.snapshot().standby < 3 {
            assert!(Instant::now() < deadline, "all are idle again");
            std::thread::yield_now();
        }
        drop(ground.take(Wait::Io, false));
        ground.given_back.recv_timeout(SOON).unwrap();
        assert_eq!(ground.pool.count.wait_for_none(Instant::now()), 3);
        assert_eq!(ground.pool.end(deadline), 0);
        assert_eq!(ground.metrics.snapshot().standby, 0);
    }

    #[test]
    fn a_panic_is_reported_to_the_owner() {
        let ground = Ground::new(8, 0);
        drop(ground.take(Wait::Io, true));
        ground.panicked.recv_timeout(SOON).unwrap();
        assert_eq!(
            ground.pool.end(Instant::now() + SOON),
            0,
            "its thread has ended"
        );
    }
}

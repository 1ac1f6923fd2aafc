//! Leader and followers: which worker reads.
//!
//! ```text
//!            read(2)                      hands its role on, or
//!   idle ◄───────────► busy reader ───────the monitor takes it───────► blocked
//!    ▲                                                                   │ answered
//!    │ called                          enough readers                    ▼
//!    └───────────────── standby ◄─────────────────────────────────── rejoins
//!    ▲                                  one is missing                   │
//!    └───────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The number of readers is constant while workers block and rejoin; it is one while a reader is paired
//! with its caller ([`crate::serving::Pairing`]). Two rules keep hand-overs rare: a worker that blocks
//! calls another reader only when none is idle (the stall monitor corrects that later), and a worker
//! that rejoins takes the first free role. A worker that waits for a lock, perhaps for ever, is always
//! replaced.
//!
//! **Concurrency.** The lock guards the list and every change of a role, except a worker's `word`: the
//! role bit, the busy bit, and a number that grows with each request. The worker writes it before and
//! after each request without the lock. The holder of the lock takes a role by clearing its bit, which
//! the worker finds when its request ends. So a request costs two atomic operations on a cache line of
//! the worker's own, and no lock.

mod pair;

pub(super) use pair::ReaderPairing;

use crate::dispatch::Wait;
use crate::file_system::FileSystem;
use crate::metrics::bump;
use crate::serving::scheduling::Processes;
use crate::serving::{BlockedCounts, MonitorWaker};
use crate::transport::Connection;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};
use thrufs_sys::signal::{ThreadId, current_thread_id, interrupt_thread};

/// The worker is a reader.
const READER: u64 = 1;
/// The worker has a request.
const BUSY: u64 = 2;
/// Added to the word by every request.
const ONE_REQUEST: u64 = 4;

/// How long a standby worker keeps its memory.
const KEEP_MEMORY: Duration = Duration::from_secs(1);
/// How long after that it ends.
const KEEP_THREAD: Duration = Duration::from_secs(9);
/// So many standby workers never end: the next request that sleeps needs no new thread.
const STANDBY_KEPT: usize = 2;

/// One thread of the pool, as the others see it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Worker {
    word: AtomicU64,
    /// The word at the last look, and for how many looks it has been the same. The monitor's alone.
    seen: AtomicU64,
    seen_times: AtomicU32,
    number: usize,
    /// Requests with a caller; the last caller's thread id; how often it changed; requests with much data.
    /// Written by the worker alone.
    asked: AtomicU64,
    caller: AtomicU32,
    changes: AtomicU64,
    large: AtomicU64,
    thread: OnceLock<(Thread, ThreadId)>,
}

/// After so many looks at one request that computes, it is treated as one that sleeps.
const RUNNING_LOOKS: u32 = 5;

impl Worker {
    pub(super) fn number(&self) -> usize {
        self.number
    }

    pub(super) fn begin(&self) {
        let _ = self
            .thread
            .set((std::thread::current(), current_thread_id()));
    }

    /// A request was read; `caller` is zero for one of the kernel itself.
    pub(super) fn begin_request<F>(&self, pool: &ReaderPool<F>, caller: u32) {
        if caller != 0 {
            count(&self.asked);
            if caller != self.caller.load(Ordering::Relaxed) {
                self.caller.store(caller, Ordering::Relaxed);
                count(&self.changes);
            }
        }
        // Before the waker's flag is read: see `MonitorWaker::arm`. In one step, because its role may be taken
        // meanwhile.
        let before = self.word.fetch_add(ONE_REQUEST | BUSY, Ordering::SeqCst);
        debug_assert_eq!(before & BUSY, 0, "it has a request");
        pool.monitor_waker.arm();
    }

    pub(super) fn count_large(&self) {
        count(&self.large);
    }

    /// The request was answered. False when the worker lost the reader's role meanwhile.
    pub(super) fn end_request(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & READER != 0
            && self
                .word
                .compare_exchange(word, word & !BUSY, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
    }

    /// Whether the worker has had the request of `word` for too long. Called by the monitor alone, at
    /// every look.
    fn is_stuck(&self, word: u64, processes: &Processes) -> bool {
        if self.seen.swap(word, Ordering::Relaxed) != word {
            self.seen_times.store(0, Ordering::Relaxed);
            return false;
        }
        let times = self.seen_times.fetch_add(1, Ordering::Relaxed) + 1;
        // A thread that runs or waits for a CPU does not sleep: another would get no further.
        let thread = self.thread.get();
        times >= RUNNING_LOOKS || thread.is_some_and(|(_, id)| !processes.wants_cpu(*id))
    }

    pub(super) fn is_reader(&self) -> bool {
        self.word.load(Ordering::SeqCst) & READER != 0
    }

    /// Makes the worker, which is not busy, a reader. Under the list's lock.
    fn make_reader(&self) {
        let word = self.word.load(Ordering::Relaxed) & !BUSY;
        self.word.store(word | READER, Ordering::SeqCst);
    }
}

/// Adds one to a counter that only the calling thread writes.
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Whether a worker may carry out a request that sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocking {
    /// It is no reader any more.
    Allowed,
    /// It is needed as a reader, or too many requests are blocked.
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Read,
    Leave,
}

/// Which requests arrive on `/dev/fuse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// All.
    All,
    /// Those that no other transport carries: FORGETs, which have no reply, and a rare INTERRUPT.
    Rest,
}

/// Starts the thread of a worker, which is a reader from the start.
type Spawn<F> = fn(&Arc<ReaderPool<F>>, &Arc<Worker>) -> io::Result<()>;

#[derive(Debug)]
pub(crate) struct ReaderPool<F> {
    pub(super) connection: Arc<Connection<F>>,
    pub(super) load: Load,
    spawn: Spawn<F>,
    /// Readers while none is paired.
    readers_wanted: usize,
    list: Mutex<WorkerList>,
    pub(super) monitor_waker: MonitorWaker,
}

#[derive(Debug, Default)]
struct WorkerList {
    workers: Vec<Arc<Worker>>,
    standby: Vec<Arc<Worker>>,
    readers: usize,
    wanted: usize,
    /// The numbers of workers that are blocked, and on what.
    waits: Vec<(usize, Wait)>,
    blocked: BlockedCounts,
    numbers: usize,
}

impl<F: FileSystem> ReaderPool<F> {
    pub(super) fn new(
        connection: &Arc<Connection<F>>,
        load: Load,
        spawn: Spawn<F>,
    ) -> ReaderPool<F> {
        let readers_wanted = match load {
            Load::All => connection.config.threads.count(),
            Load::Rest => 1,
        };
        ReaderPool {
            connection: Arc::clone(connection),
            load,
            spawn,
            readers_wanted,
            list: Mutex::new(WorkerList {
                wanted: readers_wanted,
                ..WorkerList::default()
            }),
            monitor_waker: MonitorWaker::default(),
        }
    }

    pub(super) fn start(self: &Arc<Self>) -> io::Result<()> {
        let mut list = self.list.lock();
        while list.readers < list.wanted {
            match self.spawn_reader(&mut list) {
                Ok(()) => {}
                Err(error) if list.readers == 0 => return Err(error),
                Err(error) => {
                    let (readers, wanted) = (list.readers, list.wanted);
                    tracing::warn!(%error, readers, wanted, "fewer readers than wanted");
                    break;
                }
            }
        }
        self.note(&mut list);
        Ok(())
    }

    fn spawn_reader(self: &Arc<Self>, list: &mut WorkerList) -> io::Result<()> {
        let worker = Arc::new(Worker {
            word: AtomicU64::new(READER),
            number: list.numbers,
            ..Worker::default()
        });
        // Before the thread can answer a request, whose caller may read this metric.
        let readers = &self.connection.metrics().figures.readers;
        readers.store(list.readers as u64 + 1, Ordering::Relaxed);
        (self.spawn)(self, &worker).inspect_err(|_| self.note(list))?;
        list.numbers += 1;
        list.readers += 1;
        list.workers.push(worker);
        Ok(())
    }

    /// Adds a reader: a standby worker, or a new one. False when neither is available.
    fn call_reader(self: &Arc<Self>, list: &mut WorkerList) -> bool {
        if let Some(worker) = list.standby.pop() {
            worker.make_reader();
            list.readers += 1;
            if let Some((thread, _)) = worker.thread.get() {
                thread.unpark();
            }
            return true;
        }
        match self.spawn_reader(list) {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(%error, "no further thread");
                false
            }
        }
    }

    /// Takes the reader's role from `worker`, which is about to sleep, unless it must keep it.
    pub(super) fn begin_blocking(self: &Arc<Self>, worker: &Arc<Worker>, wait: Wait) -> Blocking {
        let mut list = self.list.lock();
        let room = list.blocked.admits(wait, self.connection.config.limits());
        if !worker.is_reader() {
            // The monitor took the role, and counted the worker as blocked.
            return match wait {
                Wait::Io | Wait::Late | Wait::Window => Blocking::Allowed,
                Wait::Lock { .. } if !room => Blocking::Refused,
                Wait::Lock { .. } => {
                    list.count_unblocked(worker);
                    list.count_blocked(worker, wait);
                    self.note(&mut list);
                    Blocking::Allowed
                }
            };
        }
        let idle = |other: &Arc<Worker>| {
            !Arc::ptr_eq(other, worker)
                && other.word.load(Ordering::SeqCst) & (READER | BUSY) == READER
        };
        let needed = wait.refusal().is_some() || !list.workers.iter().any(idle);
        let replaced = room && (!needed || self.call_reader(&mut list) || list.readers > 1);
        if !replaced {
            if wait == Wait::Io {
                bump(&self.connection.metrics().figures.blocked_inline);
            }
            return Blocking::Refused;
        }
        worker.word.fetch_and(!READER, Ordering::SeqCst);
        list.readers -= 1;
        list.count_blocked(worker, wait);
        self.note(&mut list);
        Blocking::Allowed
    }

    /// `worker` has answered a request after it lost its role. Returns when it is a reader again, or is to
    /// end. `release_memory` is called after a while on standby.
    pub(super) fn rejoin(&self, worker: &Arc<Worker>, mut release_memory: impl FnMut()) -> Next {
        let mut list = self.list.lock();
        list.count_unblocked(worker);
        if self.connection.control.is_stopping() {
            return Next::Leave;
        }
        if list.readers < list.wanted {
            worker.make_reader();
            list.readers += 1;
            self.note(&mut list);
            return Next::Read;
        }
        worker.word.fetch_and(!BUSY, Ordering::SeqCst);
        list.standby.push(Arc::clone(worker));
        self.note(&mut list);
        drop(list);
        if let Some(next) = self.stand_by(worker, KEEP_MEMORY) {
            return next;
        }
        release_memory();
        if let Some(next) = self.stand_by(worker, KEEP_THREAD) {
            return next;
        }
        let mut list = self.list.lock();
        if !worker.is_reader() && list.standby.len() > STANDBY_KEPT {
            list.remove_from_standby(worker);
            self.note(&mut list);
            return Next::Leave;
        }
        drop(list);
        self.stand_by(worker, Duration::MAX).unwrap_or(Next::Leave)
    }

    /// Sleeps until the worker is called, the session ends, or the time is over.
    fn stand_by(&self, worker: &Arc<Worker>, timeout: Duration) -> Option<Next> {
        let start = Instant::now();
        loop {
            std::thread::park_timeout(timeout.checked_sub(start.elapsed())?);
            let mut list = self.list.lock();
            if self.connection.control.is_stopping() {
                return Some(Next::Leave);
            }
            if worker.is_reader() {
                self.note(&mut list);
                return Some(Next::Read);
            }
        }
    }

    pub(super) fn leave(&self, worker: &Arc<Worker>) {
        let mut list = self.list.lock();
        list.count_unblocked(worker);
        list.remove_from_standby(worker);
        list.workers.retain(|other| !Arc::ptr_eq(other, worker));
        if worker.is_reader() {
            list.readers -= 1;
        }
        self.note(&mut list);
    }

    /// Wakes all workers that read or stand by, so that they see that the session ends. Repeated until they
    /// have ended.
    pub(crate) fn wake(&self) {
        let list = self.list.lock();
        for worker in &list.workers {
            let Some((thread, id)) = worker.thread.get() else {
                continue;
            };
            thread.unpark();
            // Not busy ones: a signal would interrupt the system call they are in.
            if worker.word.load(Ordering::SeqCst) & (READER | BUSY) == READER {
                let _ = interrupt_thread(*id);
            }
        }
        drop(list);
        self.monitor_waker.wake();
    }

    fn note(&self, list: &mut WorkerList) {
        let levels = &self.connection.metrics().figures;
        levels.readers.store(list.readers as u64, Ordering::Relaxed);
        let standby = list.standby.len();
        list.blocked.report(self.connection.metrics(), standby);
    }
}

/// The stall monitor's part; its thread is in [`super::stall_monitor`].
impl<F: FileSystem> ReaderPool<F> {
    fn has_pending_request(&self) -> bool {
        let mut descriptors = [PollFd::new(&self.connection.device, PollFlags::IN)];
        rustix::event::poll(&mut descriptors, Some(&Timespec::default()))
            .is_ok_and(|ready| ready > 0)
    }

    pub(super) fn is_busy(&self) -> bool {
        let busy = |worker: &Arc<Worker>| {
            worker.word.load(Ordering::SeqCst) & (READER | BUSY) == READER | BUSY
        };
        self.list.lock().workers.iter().any(busy)
    }

    /// Keeps a reader idle. True when a reader has not moved since the last look, or when none is idle and
    /// some are missing.
    pub(super) fn check_readers(self: &Arc<Self>) -> bool {
        let mut list = self.list.lock();
        let (mut idle, mut moving, mut stuck) = (false, false, None);
        for worker in &list.workers {
            let word = worker.word.load(Ordering::SeqCst);
            match word & (READER | BUSY) {
                READER => idle = true,
                state if state & READER == 0 => {}
                _ if worker.is_stuck(word, &self.connection.processes) => {
                    stuck = Some((Arc::clone(worker), word));
                }
                _ => moving = true,
            }
        }
        let suspicious = stuck.is_some();
        if idle || self.connection.control.is_stopping() {
            return suspicious;
        }
        match stuck {
            Some((worker, word)) if !moving => self.displace(&mut list, &worker, word),
            _ if list.readers < list.wanted => {
                self.call_reader(&mut list);
            }
            _ => return suspicious,
        }
        self.note(&mut list);
        true
    }

    /// Takes the role from `worker`, stuck in the request it had at `word`, and gives it to another.
    fn displace(self: &Arc<Self>, list: &mut WorkerList, worker: &Arc<Worker>, word: u64) {
        if list.blocked.io_count() >= self.connection.config.blocked_max {
            return;
        }
        let taken =
            worker
                .word
                .compare_exchange(word, word & !READER, Ordering::SeqCst, Ordering::Relaxed);
        if taken.is_ok() {
            bump(&self.connection.metrics().figures.displaced);
            list.readers -= 1;
            list.count_blocked(worker, Wait::Io);
            // Without another, the worker becomes a reader again when its request ends.
            self.call_reader(list);
        }
    }
}

impl WorkerList {
    fn count_blocked(&mut self, worker: &Worker, wait: Wait) {
        self.blocked.enter(wait);
        self.waits.push((worker.number, wait));
    }

    fn count_unblocked(&mut self, worker: &Worker) {
        let mut waits = self.waits.iter();
        if let Some(at) = waits.position(|(number, _)| *number == worker.number) {
            let (_, wait) = self.waits.swap_remove(at);
            self.blocked.leave(wait);
        }
    }

    fn is_blocked(&self, worker: &Worker) -> bool {
        self.waits
            .iter()
            .any(|(number, _)| *number == worker.number)
    }

    fn remove_from_standby(&mut self, worker: &Arc<Worker>) {
        self.standby.retain(|other| !Arc::ptr_eq(other, worker));
    }
}

//! The workers of the ring transport, and what they share.
//!
//! **Concurrency.** A ring and its slots belong to one thread. A worker's word and counts are atomics of
//! its own, which every thread may read; returned requests pass through a lock that is held briefly. The
//! lock of the list is taken by no request.

use super::plan::Group;
use super::request::{Reading, Sleeping};
use super::worker::Worker;
use crate::file_system::FileSystem;
use crate::serving::{BlockingPool, MonitorWaker};
use crate::transport::Connection;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Instant;
use thrufs_abi::NodeId;
use thrufs_sys::fuse_ring::FuseRing;

pub(super) type Ring = FuseRing<Reading>;

/// Where a thread reports that it serves; nothing for a substitute that starts later.
pub(super) type Report = Option<SyncSender<Result<(), Errno>>>;

/// Starts the thread of a worker.
type Spawn<F> = fn(&Arc<WorkerPool<F>>, Arc<Worker>, Ring, Report) -> io::Result<()>;

#[derive(Debug)]
pub(crate) struct WorkerPool<F> {
    pub(super) connection: Arc<Connection<F>>,
    pub(super) depth: u16,
    pub(super) payload_bytes: usize,
    pub(super) blocking_pool: Arc<BlockingPool<Sleeping<F>>>,
    pub(super) monitor_waker: MonitorWaker,
    spawn: Spawn<F>,
    list: Mutex<WorkerList>,
    /// The start has failed: no thread is to serve.
    abandoned: AtomicBool,
}

#[derive(Debug, Default)]
struct WorkerList {
    workers: Vec<Arc<Worker>>,
    /// Rings for further workers: made beforehand, because a confined process cannot make any.
    reserve: Vec<Ring>,
}

impl<F> WorkerPool<F> {
    pub(super) fn new(
        connection: &Arc<Connection<F>>,
        depth: u16,
        payload_bytes: usize,
        reserve: Vec<Ring>,
        spawn: Spawn<F>,
    ) -> WorkerPool<F>
    where
        F: FileSystem,
    {
        let (limits, metrics) = (connection.config.limits(), Arc::clone(connection.metrics()));
        let blocking_pool = BlockingPool::new(limits, metrics, connection.threads.clone());
        WorkerPool {
            connection: Arc::clone(connection),
            depth,
            payload_bytes,
            blocking_pool: Arc::new(blocking_pool),
            monitor_waker: MonitorWaker::default(),
            spawn,
            list: Mutex::new(WorkerList {
                workers: Vec::new(),
                reserve,
            }),
            abandoned: AtomicBool::new(false),
        }
    }

    pub(super) fn take_ring(&self) -> Option<Ring> {
        self.list.lock().reserve.pop()
    }

    pub(super) fn len(&self) -> usize {
        self.list.lock().workers.len()
    }

    pub(super) fn workers(&self) -> Vec<Arc<Worker>> {
        self.list.lock().workers.clone()
    }

    /// Regular files that the kernel knows, from recent requests.
    pub(super) fn files(&self) -> Vec<NodeId> {
        let list = self.list.lock();
        let files = list.workers.iter().filter_map(|worker| worker.file());
        files.collect()
    }

    fn note(&self, workers: usize) {
        let level = &self.connection.metrics().figures.ring_threads;
        level.store(workers as u64, Ordering::Relaxed);
    }

    pub(super) fn leave(&self, worker: &Arc<Worker>) {
        worker.end();
        let mut list = self.list.lock();
        list.workers.retain(|other| !Arc::ptr_eq(other, worker));
        let count = list.workers.len();
        self.note(count);
    }

    /// Wakes all threads so that they see that they are to end. Repeated until they have ended.
    pub(crate) fn wake(&self) {
        for worker in self.workers() {
            worker.wake();
        }
        self.blocking_pool.begin_to_end();
        self.monitor_waker.wake();
    }

    /// Ends the blocking pool, after all other threads. Returns how many threads are left at `deadline`.
    pub(crate) fn end(&self, deadline: Instant) -> usize {
        self.blocking_pool.end(deadline)
    }

    /// Ends all threads before they have served.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(super) fn is_ending(&self) -> bool {
        self.connection.control.is_stopping() || self.abandoned.load(Ordering::Relaxed)
    }

    pub(super) fn is_busy(&self) -> bool {
        let busy = |worker: &Arc<Worker>| Worker::is_busy(worker.word());
        self.list.lock().workers.iter().any(busy)
    }
}

impl<F: FileSystem> WorkerPool<F> {
    /// Whether `worker` may sleep with its only request, because another worker of its group is idle, or has
    /// just been started.
    pub(super) fn has_substitute(self: &Arc<Self>, worker: &Arc<Worker>) -> bool {
        let number = worker.group_number;
        let idle = |other: &&Arc<Worker>| {
            other.group_number == number && !Arc::ptr_eq(other, worker) && other.is_idle()
        };
        let idle = self.list.lock().workers.iter().filter(idle).count();
        // A single idle one may sleep at once, too.
        let called = idle < 2
            && self.take_ring().is_some_and(|ring| {
                let added = self.add(number, &worker.group, ring, None);
                added.is_ok()
            });
        idle > 0 || called
    }

    /// Starts a thread for the queues of a group, which reports to `report` whether it serves them.
    pub(super) fn add(
        self: &Arc<Self>,
        number: usize,
        group: &Group,
        ring: Ring,
        report: Report,
    ) -> io::Result<()> {
        let worker = Arc::new(Worker::new(number, group.clone(), ring.waker()));
        (self.spawn)(self, Arc::clone(&worker), ring, report)?;
        let mut list = self.list.lock();
        list.workers.push(worker);
        let count = list.workers.len();
        self.note(count);
        Ok(())
    }
}

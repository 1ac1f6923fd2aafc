//! A worker, which serves queues, as other threads see it.

use super::plan::Group;
use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thrufs_abi::NodeId;
use thrufs_sys::fuse_ring::{Slot, Waker};
use thrufs_sys::signal::{ThreadId, current_thread_id};

/// The worker has a request.
const BUSY: u64 = 1;
/// Added to the word by every request.
const ONE_REQUEST: u64 = 2;

/// See the module. The word and the counts are written by the worker's own thread, without a lock, and
/// read by the stall monitor.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Worker {
    word: AtomicU64,
    large: AtomicU64,
    /// A regular file of a recent request; 0 before the first.
    file: AtomicU64,
    /// Its slots are registered.
    serves: AtomicBool,
    /// The number of its group of queues.
    pub(super) group_number: usize,
    pub(super) group: Group,
    waker: Waker,
    returned: Mutex<Vec<(Slot, usize)>>,
    thread: OnceLock<ThreadId>,
    /// Its thread has ended, or will without another request.
    gone: AtomicBool,
}

impl Worker {
    pub(super) fn new(group_number: usize, group: Group, waker: Waker) -> Worker {
        Worker {
            word: AtomicU64::new(0),
            large: AtomicU64::new(0),
            file: AtomicU64::new(0),
            serves: AtomicBool::new(false),
            group_number,
            group,
            waker,
            returned: Mutex::default(),
            thread: OnceLock::new(),
            gone: AtomicBool::new(false),
        }
    }

    pub(super) fn begin(&self) {
        let _ = self.thread.set(current_thread_id());
    }

    /// Its slots are registered.
    pub(super) fn serve(&self) {
        self.serves.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.serves.load(Ordering::SeqCst) && !self.is_gone() && !Worker::is_busy(self.word())
    }

    pub(super) fn note_file(&self, node: u64) {
        self.file.store(node, Ordering::Relaxed);
    }

    pub(super) fn file(&self) -> Option<NodeId> {
        Some(NodeId(self.file.load(Ordering::Relaxed))).filter(|node| node.0 != 0)
    }

    pub(super) fn end(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    pub(super) fn thread(&self) -> Option<ThreadId> {
        self.thread.get().copied()
    }

    /// A request has begun. Ordered before the waker's flag is read: see
    /// [`MonitorWaker::arm`](crate::serving::MonitorWaker::arm).
    pub(super) fn begin_request(&self) {
        let word = self.word.load(Ordering::Relaxed);
        self.word
            .swap((word + ONE_REQUEST) | BUSY, Ordering::SeqCst);
    }

    pub(super) fn end_requests(&self) {
        let word = self.word.load(Ordering::Relaxed);
        self.word.store(word & !BUSY, Ordering::SeqCst);
    }

    pub(super) fn count_large(&self) {
        let large = self.large.load(Ordering::Relaxed);
        self.large.store(large + 1, Ordering::Relaxed);
    }

    /// Changes with every request; see [`is_busy`](Self::is_busy).
    pub(super) fn word(&self) -> u64 {
        self.word.load(Ordering::SeqCst)
    }

    pub(super) fn is_busy(word: u64) -> bool {
        word & BUSY != 0
    }

    /// Requests so far, and those of them with much data.
    pub(super) fn counts(&self) -> (u64, u64) {
        let requests = self.word.load(Ordering::Relaxed) / ONE_REQUEST;
        (requests, self.large.load(Ordering::Relaxed))
    }

    /// A request that was carried out elsewhere, with the length of its reply.
    pub(super) fn return_slot(&self, slot: Slot, length: usize) {
        self.returned.lock().push((slot, length));
        self.waker.wake();
    }

    pub(super) fn take_returned(&self) -> Vec<(Slot, usize)> {
        std::mem::take(&mut *self.returned.lock())
    }

    pub(super) fn wake(&self) {
        self.waker.wake();
    }
}

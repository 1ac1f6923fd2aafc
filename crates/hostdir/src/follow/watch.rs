//! What the threads share that follow changes.

use super::changes::Changes;
use super::figures::Figures;
use super::lanes::{Lanes, Message};
use super::losses::Losses;
use super::marks::Marks;
use super::silent::Silent;
use crate::tree::Tree;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use thrufs_abi::NodeId;
use thrufs_sys::fanotify::Group;

/// How long a request waits for notifications.
const CATCH_UP_MAX: Duration = Duration::from_millis(10);

/// What wakes the [reader](super::reader) to read events, and to look at the table of mounts as well.
const READ_EVENTS: &[u8; 1] = b".";
pub(super) const LOOK_AT_MOUNTS: &[u8; 1] = b"!";

pub(super) struct Watch {
    pub(super) tree: Arc<Tree>,
    pub(super) marks: Marks,
    pub(super) changes: Changes,
    pub(super) lanes: Lanes,
    pub(super) losses: Losses,
    pub(super) figures: Figures,
    pub(super) silent: Silent,
    /// Whether a name may be hidden by what it leads to, so that it is looked up again after each change.
    pub(super) hides: Arc<AtomicBool>,
    /// When it was first seen that the attributes of the root had been reported.
    pub(super) root_reported: OnceLock<Instant>,
    /// Whether the reader waits for events.
    is_idle: AtomicBool,
    /// Rounds of the reader, each until the queue of events is empty.
    rounds: Mutex<u64>,
    round_ended: Condvar,
}

impl Watch {
    pub(super) fn new(tree: Arc<Tree>, marks: Marks, hides: Arc<AtomicBool>) -> Watch {
        Watch {
            tree,
            marks,
            changes: Changes::default(),
            lanes: Lanes::default(),
            losses: Losses::default(),
            figures: Figures::default(),
            silent: Silent::default(),
            hides,
            root_reported: OnceLock::new(),
            is_idle: AtomicBool::new(false),
            rounds: Mutex::default(),
            round_ended: Condvar::new(),
        }
    }

    /// Events were lost.
    pub(super) fn lose(&self, what: &str) {
        self.losses.lose();
        self.changes.lost();
        self.figures.lost();
        tracing::debug!("{what}: all that the kernel keeps is dropped");
        self.lanes.replace_all_by_repair();
    }

    pub(super) fn push(&self, message: Message) {
        if !self.lanes.push(message, Instant::now()) {
            self.lose("too many notifications");
        }
    }

    /// The kernel above drops what it has of a node.
    pub(super) fn drop_all_of(&self, node: NodeId) {
        self.push(Message::all_of(node));
    }

    /// As [`drop_all_of`](Self::drop_all_of), but not now.
    pub(super) fn drop_later(&self, node: NodeId, after: Duration) {
        let due = Instant::now() + after;
        if !self.lanes.push_later(Message::all_of(node), due) {
            self.lose("too many notifications");
        }
    }

    /// The reader has found the queue of events empty.
    pub(super) fn end_round(&self) {
        *self.rounds.lock() += 1;
        self.round_ended.notify_all();
    }

    /// Waits until the kernel above has been told of all changes so far; false after `patience`. `wakeup` is what
    /// the [reader](super::reader) returned.
    pub(super) fn settle(&self, wakeup: &OwnedFd, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        self.read_all(wakeup, LOOK_AT_MOUNTS, deadline) && self.lanes.flush(deadline)
    }

    /// See [`Follow::catch_up`](super::Follow::catch_up).
    pub(super) fn catch_up(&self, wakeup: &OwnedFd, node: NodeId) {
        let deadline = Instant::now() + CATCH_UP_MAX;
        if !self.losses.are_late()
            && (self.has_read_all() || self.read_all(wakeup, READ_EVENTS, deadline))
        {
            self.lanes.send_first(node, deadline);
        }
    }

    /// Waits until the reader has read what is queued now.
    fn read_all(&self, wakeup: &OwnedFd, asked: &[u8; 1], deadline: Instant) -> bool {
        let mut rounds = self.rounds.lock();
        // The reader may be at the end of a round. The next begins later than this call.
        let target = *rounds + 2;
        while *rounds < target {
            if rustix::io::write(wakeup, asked).is_err() {
                return false;
            }
            let waited = self.round_ended.wait_until(&mut rounds, deadline);
            if waited.timed_out() {
                return false;
            }
        }
        true
    }

    /// Whether the reader has nothing to read, and none of what it has read is left. In this order: it has begun
    /// before it takes an event.
    fn has_read_all(&self) -> bool {
        let has_events = |group: &Arc<Group>| {
            let mut fds = [PollFd::new(&**group, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec::default())) != Ok(0)
        };
        !self.marks.groups().iter().any(has_events) && self.is_idle.load(Ordering::SeqCst)
    }

    /// Waits for work, on the reader.
    pub(super) fn while_idle<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.is_idle.store(true, Ordering::SeqCst);
        let woken = wait();
        self.is_idle.store(false, Ordering::SeqCst);
        woken
    }
}

//! What the threads share that follow changes.

use super::changes::Changes;
use super::figures::Figures;
use super::lanes::{GIVEN_UP, Lanes, Message, Untold};
use super::losses::{LATE_TIMEOUT, Losses};
use super::marks::Marks;
use super::silent::{Repeated, Silent};
use crate::tree::Tree;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use thrufs_abi::NodeId;
use thrufs_sys::fanotify::{BUFFER_BYTES, Group};

/// How long a request waits for notifications.
const CATCH_UP_MAX: Duration = Duration::from_millis(10);

/// How long an open reads events. It is answered by looking its path up again if there are more.
const READ_MAX: Duration = Duration::from_millis(1);

/// How long an open is on its way at most, from the last look at a name above until it is answered.
const OPEN_MAX: Duration = Duration::from_millis(100);

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
    /// Held from reading events until their messages are queued.
    pub(super) reading: Mutex<Reading>,
    pub(super) names_changed: Mutex<NamesChanged>,
    /// Rounds of the reader, each until the queue of events is empty.
    rounds: Mutex<u64>,
    round_ended: Condvar,
}

/// What a thread needs that reads events.
pub(super) struct Reading {
    pub(super) buffer: Vec<u8>,
    pub(super) repeated: Repeated,
    /// The process whose events are its own.
    pub(super) own: u32,
}

impl Default for Reading {
    fn default() -> Reading {
        Reading {
            buffer: vec![0; BUFFER_BYTES],
            repeated: Repeated::default(),
            own: std::process::id(),
        }
    }
}

/// When a name last changed, or went, that the kernel above may have.
#[derive(Default)]
pub(super) struct NamesChanged {
    /// The event was read.
    pub(super) read: Option<Instant>,
    /// The kernel was told, and had it.
    pub(super) told: Option<Instant>,
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
            reading: Mutex::default(),
            names_changed: Mutex::default(),
            rounds: Mutex::default(),
            round_ended: Condvar::new(),
        }
    }

    /// Events were lost.
    pub(super) fn lose(&self, what: &str) {
        self.losses.lose();
        self.changes.lost();
        self.figures.losses.fetch_add(1, Ordering::Relaxed);
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

    /// See [`Follow::has_outdated_names`](super::Follow::has_outdated_names).
    pub(super) fn has_outdated_names(&self) -> bool {
        if !self.catch_up_reading(READ_MAX) || self.losses.are_pending() {
            return true;
        }
        let within = |time: Option<Instant>, most| time.is_some_and(|it| it.elapsed() < most);
        // Locked until it is known what is on its way: that takes this lock when it has arrived.
        let changed = self.names_changed.lock();
        self.lanes.gave_up_within(LATE_TIMEOUT)
            || self.losses.are_pending()
            || within(changed.told, OPEN_MAX)
            || within(changed.read, GIVEN_UP) && !self.lanes.have_sent_names()
    }

    /// Waits until the kernel above has been told of all changes so far; false after `patience`. `wakeup` is what
    /// the [reader](super::reader) returned.
    pub(super) fn settle(&self, wakeup: &OwnedFd, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        // A loss is followed by a repair, and that by what waits for listings.
        self.read_all(wakeup, deadline) && (0..3).all(|_| self.lanes.flush(deadline))
    }

    /// See [`Follow::catch_up`](super::Follow::catch_up).
    pub(super) fn catch_up(&self, node: NodeId) -> bool {
        let deadline = Instant::now() + CATCH_UP_MAX;
        !self.losses.are_late()
            && self.catch_up_reading(CATCH_UP_MAX)
            && self.lanes.send_first(node, deadline)
    }

    /// See [`Follow::untold`](super::Follow::untold).
    pub(super) fn untold(&self, late: Duration) -> Option<Untold> {
        let deadline = Instant::now() + late;
        if !self.catch_up_reading(late) {
            return Some(Untold::all());
        }
        let losses = self.losses.count();
        let untold = self.lanes.untold(late, deadline);
        // With a loss, messages are dropped that were waited for.
        match self.losses.count() == losses {
            true => untold,
            false => Some(Untold::all()),
        }
    }

    /// Waits until the reader has read what is queued now, and has looked at the table of mounts.
    fn read_all(&self, wakeup: &OwnedFd, deadline: Instant) -> bool {
        let mut rounds = self.rounds.lock();
        // The reader may be at the end of a round. The next begins later than this call.
        let target = *rounds + 2;
        while *rounds < target {
            if rustix::io::write(wakeup, b"!").is_err() {
                return false;
            }
            let waited = self.round_ended.wait_until(&mut rounds, deadline);
            if waited.timed_out() {
                return false;
            }
        }
        true
    }

    /// Reads what is queued now, unless the reader has. False if that takes longer than `patience`.
    fn catch_up_reading(&self, patience: Duration) -> bool {
        let has_events = |group: &Arc<Group>| {
            let mut fds = [PollFd::new(&**group, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec::default())) != Ok(0)
        };
        // In this order: who reads has locked before it takes an event.
        if !self.marks.groups().iter().any(has_events) && self.reading.try_lock().is_some() {
            return true;
        }
        self.read_queued(Some(Instant::now() + patience))
    }
}

//! What the threads share that follow changes.

use super::changes::Changes;
use super::figures::Figures;
use super::lanes::{Lanes, Message};
use super::losses::Losses;
use super::marks::Marks;
use super::silent::Silent;
use crate::tree::Tree;
use parking_lot::{Condvar, Mutex};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use thrufs_abi::NodeId;

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
        let mut rounds = self.rounds.lock();
        // The reader may be at the end of a round. The next begins later than this call.
        let target = *rounds + 2;
        while *rounds < target {
            if rustix::io::write(wakeup, b"!").is_err() {
                return false;
            }
            if self
                .round_ended
                .wait_until(&mut rounds, deadline)
                .timed_out()
            {
                return false;
            }
        }
        drop(rounds);
        self.lanes.flush(deadline)
    }
}

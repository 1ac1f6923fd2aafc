//! Open files whose descriptors are to be stored with the process that outlives this one.
//!
//! The next worker finds an open file by its handle or its place. Neither leads to a file that the host or
//! another guest has removed or replaced, and a place to none that was moved. Only a descriptor does.
//!
//! **Cost.** To send one costs about as much as an open, and most files are closed at once. So an open only
//! enters its inode here; two milliseconds later a [thread](super::storing) sends descriptors of those that
//! are still open. The last close of a stored file discards the descriptor, and whoever removes a name after
//! that waits until it is closed, so that its blocks are free. What is opened and closed within that time costs
//! no system call, but for the first after a rest, which wakes the thread.
//!
//! **What remains.** A file that is moved or removed by others, while this process dies, in those two milliseconds
//! after it was opened; and files beyond [`STORED_MAX`].

use super::inode::Inode;
use parking_lot::{Condvar, Mutex};
use std::sync::{Arc, Weak};

/// Most open files with a descriptor, if the other process takes twice as many: the rest is for files without
/// names and for locks.
pub(super) const STORED_MAX: usize = 8192;

/// Most inodes that wait. Beyond, the thread looks at all inodes.
const WAITING_MAX: usize = 4096;

#[derive(Default)]
pub(crate) struct OpenStore {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    inodes: Vec<Weak<Inode>>,
    are_too_many: bool,
    is_over: bool,
}

impl OpenStore {
    /// Has the thread look at an inode that was opened, or closed.
    pub(super) fn enter(&self, inode: &Arc<Inode>) {
        let mut waiting = self.waiting.lock();
        if waiting.inodes.len() >= WAITING_MAX {
            waiting.are_too_many = true;
            return;
        }
        waiting.inodes.push(Arc::downgrade(inode));
        let is_first = waiting.inodes.len() == 1;
        drop(waiting);
        if is_first {
            self.changed.notify_one();
        }
    }

    /// Nothing is stored from now on.
    pub(super) fn end(&self) {
        self.waiting.lock().is_over = true;
        self.changed.notify_one();
    }

    pub(super) fn is_over(&self) -> bool {
        self.waiting.lock().is_over
    }

    /// Waits for an inode. False at the end.
    pub(super) fn wait(&self) -> bool {
        let mut waiting = self.waiting.lock();
        while waiting.inodes.is_empty() && !waiting.is_over {
            self.changed.wait(&mut waiting);
        }
        !waiting.is_over
    }

    /// Moves the inodes that wait to `taken`; true if there were too many.
    pub(super) fn take(&self, taken: &mut Vec<Weak<Inode>>) -> bool {
        let mut waiting = self.waiting.lock();
        std::mem::swap(&mut waiting.inodes, taken);
        std::mem::take(&mut waiting.are_too_many)
    }
}

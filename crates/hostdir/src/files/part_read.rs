//! Listings that were read in part, of directories that the kernel above opens by itself: their READDIR comes
//! without a handle, and goes on where one of the same directory ended. A bounded queue.
//!
//! One that has left the queue is begun anew at its position. File systems whose positions move when entries are
//! renamed may return an entry twice then, as after seekdir(3).

use super::open_directory::OpenDirectory;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use thrufs_abi::NodeId;

/// More listings are seldom under way at once.
const MOST: usize = 64;

#[derive(Default)]
pub(super) struct PartRead(Mutex<VecDeque<Arc<OpenDirectory>>>);

impl PartRead {
    /// The listing of `node` that ended at `offset`.
    pub(super) fn take(&self, node: NodeId, offset: u64) -> Option<Arc<OpenDirectory>> {
        if offset == 0 {
            return None;
        }
        let mut queue = self.0.lock();
        let ended_there = |directory: &Arc<OpenDirectory>| {
            directory.node() == node && directory.stream.lock().position == offset
        };
        let at = queue.iter().position(ended_there)?;
        queue.remove(at)
    }

    pub(super) fn keep(&self, directory: Arc<OpenDirectory>) {
        if !directory.inode.mount().is_source() {
            // It would keep the mount busy.
            return;
        }
        let mut queue = self.0.lock();
        queue.push_back(directory);
        let oldest = if queue.len() > MOST {
            queue.pop_front()
        } else {
            None
        };
        drop(queue);
        // Closed outside the lock.
        drop(oldest);
    }
}

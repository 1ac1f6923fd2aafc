//! Listings that were read in part, of directories that the kernel above opens by itself: their READDIR comes
//! without a handle. What was read ahead goes on with the walk for which it was read, and with no other: a walk is
//! that of one thread, from position 0 on.
//!
//! A thread whose walk began in the kernel's own copy of the listing comes here at a later position. So that it
//! does not meet what it left here before, each walk that begins also drops what others have left, unless the
//! directory has not changed since: the kernel's copy is then of a walk that began here after the change.
//!
//! A listing that was dropped, or has left the bounded queue, is begun anew at its position. File systems whose
//! positions move when entries are renamed may return an entry twice then, as after seekdir(3).

use super::open_directory::OpenDirectory;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use thrufs_abi::NodeId;

/// More listings are seldom under way at once.
const MOST: usize = 64;

#[derive(Default)]
pub(super) struct PartRead(Mutex<VecDeque<Rest>>);

struct Rest {
    directory: Arc<OpenDirectory>,
    /// The thread that reads.
    reader: u32,
    /// The directory's, from before anything was read; `None` if a change may have left it as it is.
    version: Option<u64>,
}

impl PartRead {
    /// The listing of `node` that `reader` has read up to `offset`, with the version of its directory.
    pub(super) fn take(
        &self,
        node: NodeId,
        offset: u64,
        reader: u32,
    ) -> Option<(Arc<OpenDirectory>, Option<u64>)> {
        let mut queue = self.0.lock();
        let ended_there = |rest: &Rest| {
            rest.reader == reader
                && rest.directory.node() == node
                && rest.directory.stream.lock().position == offset
        };
        let at = queue.iter().position(ended_there)?;
        let rest = queue.remove(at)?;
        Some((rest.directory, rest.version))
    }

    /// `reader` begins to list `node`, whose `version` is this now.
    pub(super) fn begin(&self, node: NodeId, reader: u32, version: Option<u64>) {
        let mut queue = self.0.lock();
        let is_outdated = |rest: &Rest| {
            let is_of_now = rest.version.is_some() && rest.version == version;
            rest.directory.node() == node && (rest.reader == reader || !is_of_now)
        };
        if !queue.iter().any(is_outdated) {
            return;
        }
        let (outdated, kept) = queue.drain(..).partition::<VecDeque<_>, _>(is_outdated);
        *queue = kept;
        drop(queue);
        // Closed outside the lock.
        drop(outdated);
    }

    pub(super) fn keep(&self, directory: Arc<OpenDirectory>, reader: u32, version: Option<u64>) {
        if !directory.inode.mount().is_source() {
            // It would keep the mount busy.
            return;
        }
        let mut queue = self.0.lock();
        queue.push_back(Rest {
            directory,
            reader,
            version,
        });
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

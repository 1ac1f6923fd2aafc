//! Dropping what is cached of a served directory, on request of an operator.
//!
//! The kernel above is told through the queue of notifications, which its own thread writes: some wait for a directory
//! that a caller holds, or for a read(2) under way, and whoever asks waits for a limited time only.

use crate::host::HostDir;
use serde::Serialize;
use std::time::{Duration, Instant};
use thrufs::{Errno, Notifier, Result};
use thrufs_abi::NodeId;

/// Nodes of one message.
const NODES_AT_ONCE: usize = 512;

/// What was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DroppedCaches {
    /// Nodes whose attributes, data and listings the kernel was told to drop.
    pub nodes: usize,
    /// Descriptors of files that are not open, which were closed.
    pub descriptors: usize,
    /// Whether the kernel looks up all names again.
    pub names: bool,
    /// Whether the kernel took all messages in time. The others are queued, or are not sent.
    pub finished: bool,
}

/// Repeats `notify` while the queue is full. False if that lasts until the deadline.
fn queue(
    notifier: &Notifier,
    until: Instant,
    notify: impl Fn(&Notifier) -> Result<()>,
) -> Result<bool> {
    loop {
        match notify(notifier) {
            Err(Errno::EAGAIN) if notifier.flush_by(until)? => {}
            Err(Errno::EAGAIN) => return Ok(false),
            sent => return sent.map(|()| true),
        }
    }
}

impl HostDir {
    /// Has the kernel above drop what it caches, and forget what is not in use (Linux 6.18); closes cached descriptors. What is open
    /// stays open, and data that are not written back are written. With `names`, the kernel looks up each name again, and
    /// detaches what is mounted on directories of the mount when it does. Not to be called by a thread that answers
    /// requests.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` where the kernel takes no notifications, as that of a guest, or does not any more.
    pub fn drop_caches(&self, names: bool, patience: Duration) -> Result<DroppedCaches> {
        let tree = &self.host.tree;
        let notifier = tree.connected_notifier().ok_or(Errno::ENOTCONN)?;
        let until = Instant::now() + patience;
        let is_known = |node: NodeId| match tree.nodes.get(node) {
            // Until it has its first answer, the root permits nothing, and would ignore that answer.
            Ok(inode) if node == NodeId::ROOT => inode.reported.owner().is_some(),
            Ok(inode) => inode.lookups() > 0,
            Err(_) => false,
        };
        let mut known: Vec<NodeId> = tree.nodes.iter().map(|(id, _)| NodeId(id)).collect();
        known.retain(|node| is_known(*node));
        let names = names && notifier.increment_epoch_now().is_ok();
        let mut told = 0;
        for node in &known {
            if !queue(notifier, until, |it| it.inval_inode(*node, 0, 0))? {
                break;
            }
            told += 1;
        }
        // Files before the directories that are held by them, which the kernel has known for longer.
        let unused: Vec<NodeId> = known.iter().rev().copied().collect();
        for nodes in unused.chunks(NODES_AT_ONCE) {
            queue(notifier, until, |it| it.prune(nodes))?;
        }
        let before = tree.descriptors.evictions();
        tree.descriptors.shrink(tree.descriptors.len());
        Ok(DroppedCaches {
            nodes: told,
            descriptors: (tree.descriptors.evictions() - before) as usize,
            names,
            finished: told == known.len() && notifier.flush_by(until)?,
        })
    }
}

//! What a process that died had open: some of it for opens whose callers were killed before they were answered, so that
//! nobody will release it.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use thrufs_abi::{FileHandle, NodeId};

/// How long what is left of a process that died may have files open.
const LEAVING_MAX: Duration = Duration::from_secs(10);

#[derive(Clone, Copy)]
pub(crate) enum LeftOpen {
    File(FileHandle),
    Directory(FileHandle),
}

#[derive(Default)]
pub(crate) struct Left {
    /// When this process went on after the other.
    since: OnceLock<Instant>,
    nodes: Mutex<HashMap<NodeId, Vec<LeftOpen>>>,
}

impl Left {
    pub(super) fn record(&self, node: NodeId, opened: LeftOpen) {
        self.nodes.lock().entry(node).or_default().push(opened);
    }

    /// To be called after all was recorded.
    pub(crate) fn go_on(&self) {
        let _ = self.since.set(Instant::now());
    }

    /// What was left open of a node.
    pub(super) fn take(&self, node: NodeId) -> Vec<LeftOpen> {
        let taken = self
            .since
            .get()
            .and_then(|_| self.nodes.lock().remove(&node));
        taken.unwrap_or_default()
    }

    /// Whether the process that died may have files open for writing, beside those here.
    pub(super) fn may_have_writers(&self) -> bool {
        let since = self.since.get();
        since.is_some_and(|since| since.elapsed() < LEAVING_MAX)
    }
}

//! The order in which nodes can be found: a directory before what is in it.

use crate::ledger::{MountRecords, NodeRecord};
use std::collections::HashMap;
use std::io;

/// Most levels of directories.
pub(super) const DEPTH_MAX: usize = 4096;

/// Visits each node, after the directories of its place and of its mount.
pub(super) fn in_order(
    nodes: Vec<NodeRecord>,
    mounts: &MountRecords,
    mut each: impl FnMut(NodeRecord) -> io::Result<()>,
) -> io::Result<()> {
    // Each mount has its directory on one before.
    let directories = mounts.values().map(|on| on.directory);
    let first: Vec<_> = directories
        .chain(nodes.iter().map(|record| record.node))
        .collect();
    let mut pending: HashMap<_, _> = nodes
        .into_iter()
        .map(|record| (record.node, record))
        .collect();
    let mut chain = Vec::new();
    for node in first {
        let mut next = Some(node);
        while let Some(record) = next.and_then(|node| pending.remove(&node)) {
            let directory = record.place.as_ref().map(|place| place.directory);
            next = directory.filter(|_| chain.len() < DEPTH_MAX);
            chain.push(record);
        }
        while let Some(record) = chain.pop() {
            each(record)?;
        }
    }
    Ok(())
}

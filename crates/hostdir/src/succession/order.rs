//! The order in which nodes can be found: a directory before what is in it.

use crate::ledger::{MountRecords, NodeRecord};
use std::collections::HashMap;
use std::io;

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
            next = record.place.as_ref().map(|place| place.directory);
            chain.push(record);
        }
        while let Some(record) = chain.pop() {
            each(record)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::KnownName;
    use thrufs_abi::NodeId;

    fn record(node: u64, directory: u64) -> NodeRecord {
        NodeRecord {
            node: NodeId(node),
            lookups: 1,
            file_type: libc::S_IFDIR,
            dax: 0,
            identity: None,
            place: Some(KnownName::new(NodeId(directory), b"name")),
            other_place: None,
        }
    }

    fn ordered(nodes: Vec<NodeRecord>, mounts: &MountRecords) -> Vec<u64> {
        let mut ordered = Vec::new();
        let each = |record: NodeRecord| {
            ordered.push(record.node.0);
            Ok(())
        };
        in_order(nodes, mounts, each).unwrap();
        ordered
    }

    #[test]
    fn directories_are_visited_first_and_each_node_once() {
        let nodes = [(5, 4), (3, 1), (4, 3), (9, 8), (8, 9), (7, 7)];
        let nodes = || {
            nodes
                .map(|(node, directory)| record(node, directory))
                .into()
        };
        let none = MountRecords::new();
        assert_eq!(ordered(nodes(), &none), [3, 4, 5, 8, 9, 7]);
        // What mounts are on comes before what is on them.
        let on = |node| KnownName::new(NodeId(node), b"mount");
        let mounts = MountRecords::from([(1, on(7)), (2, on(8))]);
        assert_eq!(ordered(nodes(), &mounts), [7, 9, 8, 3, 4, 5]);
        // Deeper than any stack: no level is a call.
        let deep: Vec<_> = (2..1 << 20)
            .rev()
            .map(|node| record(node, node - 1))
            .collect();
        assert!(ordered(deep, &none).into_iter().eq(2..1 << 20));
    }
}

//! The inodes that the kernel has looked up, by node id and by identity.
//!
//! **Access.** The table of slots (node id → inode) has a lock per slot. The map from identity
//! to slot is cut into shards, each under its own lock. A lookup raises an inode's count under its shard's
//! lock; a forget that brings a count to zero takes the same lock, checks again, and only then removes the
//! inode from both. So an inode found in the map was not removed, and is not while it has lookups. A
//! shard's lock is taken before a slot's, never after.

use super::inode::{Inode, NewInode, Place};
use super::lower_inode::{ChangedPlaces, Places};
use super::names::Noting;
use crate::identity::Identity;
use crate::ledger::StateTables;
use crate::slots::Slots;
use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use thrufs::{Errno, Result};
use thrufs_abi::NodeId;

const SHARDS: usize = 16;

/// Tables that never had this many nodes are not shrunk.
const MANY: usize = 1 << 10;

/// Tables are shrunk when at most one in so many of their nodes is left.
const FEW: usize = 8;

/// Nodes of another process have indices below this.
const RESTORED_INDICES: u32 = 1 << 24;

pub(crate) struct Nodes {
    slots: Slots<Inode>,
    shards: [Mutex<HashTable<u32>>; SHARDS],
    hasher: DefaultHashBuilder,
    /// Forgotten nodes that are kept, the longest forgotten first.
    dormant: Mutex<VecDeque<NodeId>>,
    dormant_max: usize,
    tables: Option<Arc<StateTables>>,
    /// The most nodes since the last shrink.
    most: AtomicUsize,
}

impl Nodes {
    /// Keeps up to `dormant_max` forgotten nodes, so that their ids can be looked up again.
    pub(crate) fn new(dormant_max: usize, tables: Option<Arc<StateTables>>) -> Nodes {
        Nodes {
            slots: Slots::starting_at(NodeId::ROOT.0 as u32),
            shards: std::array::from_fn(|_| Mutex::new(HashTable::new())),
            hasher: DefaultHashBuilder::default(),
            dormant: Mutex::new(VecDeque::new()),
            dormant_max,
            tables,
            most: AtomicUsize::new(0),
        }
    }

    /// Shrinks the tables if most of many nodes are gone. Returns true if the allocator has memory to give
    /// back. To be called periodically, by one thread.
    pub(crate) fn shrink(&self) -> bool {
        // Dormant nodes are kept for good: many of them are no reason to keep the memory of others.
        let known = self.len().saturating_sub(self.dormant_len());
        let most = self.most.load(Ordering::Relaxed).max(known);
        let is_large = most >= MANY && known <= most / FEW;
        self.most
            .store(if is_large { known } else { most }, Ordering::Relaxed);
        if is_large {
            for shard in &self.shards {
                shard.lock().shrink_to(0, |&index| self.hash_at(index));
            }
        }
        is_large
    }

    /// Gives the memory of forgotten nodes' records back. Not by a thread that answers requests.
    pub(crate) fn give_records_back(&self) {
        if let Some(tables) = &self.tables {
            self.slots.with_empty_blocks(|nodes| {
                tables.give_nodes_back(&nodes, self.slots.generation_max());
            });
            tables.names.give_back();
        }
    }

    pub(crate) fn get(&self, node: NodeId) -> Result<Arc<Inode>> {
        self.slots.get(node.0).ok_or(Errno::ESTALE)
    }

    pub(crate) fn dormant_len(&self) -> usize {
        self.dormant.lock().len()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    fn shard(&self, hash: u64) -> &Mutex<HashTable<u32>> {
        // The table uses the low and the top bits itself.
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    /// The inode with this identity, or a new one, with one lookup added. The second value says whether it
    /// is new.
    pub(crate) fn find_or_insert(&self, new: NewInode<'_>) -> Result<(Arc<Inode>, bool)> {
        let hash = self.hasher.hash_one(&new.identity);
        let mut shard = self.shard(hash).lock();
        let found = shard.find(hash, |&index| self.is_of(index, &new.identity));
        if let Some(inode) = found.and_then(|&index| self.slots.get_by_index(index)) {
            inode.add_lookup();
            self.note_lookups(inode.node(), 1);
            drop(shard);
            if let Some(place) = new.place {
                self.seen_at(&inode, place);
            }
            return Ok((inode, false));
        }
        let inode = self
            .slots
            .insert_with(|id| Inode::new(NodeId(id), 1, new))
            .map_err(|_| Errno::ENFILE)?;
        shard.insert_unique(hash, inode.node().0 as u32, |&index| self.hash_at(index));
        if self.dormant_max == 0 {
            // Many may come and go between two looks.
            self.most.fetch_max(self.len(), Ordering::Relaxed);
        }
        if let Some(tables) = &self.tables
            && inode.node() != NodeId::ROOT
        {
            inode.lower.note_in(tables, inode.node(), inode.file_type);
        }
        Ok((inode, true))
    }

    fn note_lookups(&self, node: NodeId, more: u64) {
        if let Some(tables) = &self.tables
            && node != NodeId::ROOT
        {
            tables.add_lookups(node, more);
        }
    }

    /// An inode without a file handle was seen at this place.
    pub(crate) fn seen_at(&self, inode: &Arc<Inode>, place: Box<Place>) {
        if !inode.lower.was_last_seen_at(&place) {
            self.change_places(inode, |places| places.with(place));
        }
    }

    /// An inode without a file handle has left this place.
    pub(crate) fn left(&self, inode: &Arc<Inode>, place: &Place) {
        self.change_places(inode, |places| places.without(place.noted()));
    }

    /// An inode without a file handle is at no known place.
    pub(crate) fn left_all(&self, inode: &Arc<Inode>) {
        self.change_places(inode, Places::without_any);
    }

    /// Records that an inode without a file handle is about to be moved: a resuming process looks at both
    /// places. [`moved`](Self::moved) ends that.
    pub(crate) fn record_move(&self, inode: &Arc<Inode>, [from, to]: [&Place; 2]) {
        if let Some(tables) = &self.tables {
            let _shard = self.shard(self.hasher.hash_one(inode.identity())).lock();
            if self.slots.get(inode.node().0).is_some() {
                tables.note_places(inode.node(), &[from, to].map(Place::noted));
            }
        }
    }

    /// An inode without a file handle was moved, or was not.
    pub(crate) fn moved(&self, inode: &Arc<Inode>, [from, to]: [Box<Place>; 2], was_moved: bool) {
        self.change_places(inode, |places| match was_moved {
            true => places.moved(from.noted(), to),
            false => places.with(from),
        });
    }

    fn change_places<C>(&self, inode: &Arc<Inode>, change: C)
    where
        C: FnOnce(Places<Inode>) -> ChangedPlaces<Inode>,
    {
        let Some(tables) = &self.tables else {
            return inode.lower.change_places(change, |_| {});
        };
        let _shard = self.shard(self.hasher.hash_one(inode.identity())).lock();
        // A forgotten inode has no record, and its slot may be another's.
        let is_known = self.slots.get(inode.node().0).is_some();
        inode.lower.change_places(change, |places| {
            if is_known {
                tables.note_places(inode.node(), places);
            }
        });
    }

    /// Inserts a node of another process under its id, with its lookups. To be followed by
    /// [`settle`](Self::settle). `None` for an invalid id, or one that is taken.
    pub(crate) fn insert_at(
        &self,
        node: NodeId,
        lookups: u64,
        new: NewInode<'_>,
        is_to_be_noted: bool,
    ) -> Option<Arc<Inode>> {
        let hash = self.hasher.hash_one(&new.identity);
        let inode = Inode::new(node, lookups, new);
        let mut shard = self.shard(hash).lock();
        let inode = self.slots.insert_at(node.0, RESTORED_INDICES, inode)?;
        let is_there = shard.find(hash, |&index| self.is_of(index, inode.identity()));
        // Two inodes there may be one here. Lookups find the first.
        if is_there.is_none() {
            shard.insert_unique(hash, node.0 as u32, |&index| self.hash_at(index));
        }
        if let Some(tables) = self.tables.as_ref().filter(|_| is_to_be_noted) {
            inode.lower.note_in(tables, inode.node(), inode.file_type);
            tables.add_lookups(node, lookups - 1);
        }
        Some(inode)
    }

    pub(crate) fn settle(&self, highest: u32) -> bool {
        self.slots.settle(highest)
    }

    pub(crate) fn generation_max(&self) -> u32 {
        self.slots.generation_max()
    }

    /// The nodes, while the table changes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Arc<Inode>)> {
        self.slots.iter()
    }

    /// The inode with this identity, if it is known; its count stays.
    pub(crate) fn find(&self, identity: &Identity) -> Option<Arc<Inode>> {
        let hash = self.hasher.hash_one(identity);
        let shard = self.shard(hash).lock();
        let index = shard.find(hash, |&index| self.is_of(index, identity))?;
        self.slots.get_by_index(*index)
    }

    /// Whether lookups of this identity find the inode: not one that another has to replace.
    fn is_of(&self, index: u32, identity: &Identity) -> bool {
        let inode = self.slots.get_by_index(index);
        inode.is_some_and(|inode| inode.identity() == identity && !inode.is_to_be_replaced())
    }

    fn hash_at(&self, index: u32) -> u64 {
        // Every index in a shard has its inode: both are removed under the shard's lock.
        self.slots
            .get_by_index(index)
            .map_or(0, |inode| self.hasher.hash_one(inode.identity()))
    }

    /// Adds a lookup to a node found by its id, which may be dormant.
    pub(crate) fn add_lookup(&self, node: NodeId) -> Result<Arc<Inode>> {
        let inode = self.get(node)?;
        let shard = self.shard(self.hasher.hash_one(inode.identity())).lock();
        if self.slots.get(node.0).is_none() {
            return Err(Errno::ESTALE);
        }
        inode.add_lookup();
        self.note_lookups(node, 1);
        drop(shard);
        Ok(inode)
    }

    /// Takes back `count` lookups. Returns the inode if they were the last.
    pub(crate) fn forget(&self, node: NodeId, count: u64) -> Option<Arc<Inode>> {
        let inode = self.slots.get(node.0)?;
        if node == NodeId::ROOT {
            return None;
        }
        // Recorded first: once the last lookup is gone, the slot may be used again.
        self.note_lookups(node, count.wrapping_neg());
        if inode.take_lookups(count) > 0 {
            return None;
        }
        if self.dormant_max == 0 {
            self.remove_if_forgotten(&inode);
        } else {
            self.fall_asleep(&inode);
        }
        // Another thread may have looked it up meanwhile.
        (inode.lookups() == 0).then_some(inode)
    }

    fn remove_if_forgotten(&self, inode: &Inode) {
        let hash = self.hasher.hash_one(inode.identity());
        let mut shard = self.shard(hash).lock();
        if inode.lookups() > 0 {
            return;
        }
        let index = inode.node().0 as u32;
        if let Some(tables) = &self.tables
            && self.slots.get(inode.node().0).is_some()
        {
            // Before the slot can be used again.
            tables.forget_node(inode.node());
            inode.names.forget(Noting {
                tables: Some(tables),
                node: inode.node(),
            });
        }
        // Another thread may have removed it already, and the slot may have another inode by now.
        let Some(removed) = self.slots.remove(inode.node().0) else {
            return;
        };
        if let Ok(entry) = shard.find_entry(hash, |&other| other == index) {
            entry.remove();
        }
        drop(shard);
        // May close a descriptor: after the lock.
        drop(removed);
    }

    fn fall_asleep(&self, inode: &Arc<Inode>) {
        inode.lower.drop_descriptor();
        let mut dormant = self.dormant.lock();
        if !inode.dormant.swap(true, Ordering::Relaxed) {
            dormant.push_back(inode.node());
        }
        let are_too_many = dormant.len() > self.dormant_max;
        let oldest = are_too_many.then(|| dormant.pop_front()).flatten();
        drop(dormant);
        if let Some(oldest) = oldest.and_then(|node| self.slots.get(node.0)) {
            oldest.dormant.store(false, Ordering::Relaxed);
            self.remove_if_forgotten(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::*;
    use crate::config::Config;
    use crate::identity::KnownName;
    use crate::ledger::Ledger;

    fn tree_with(config: &Config, ledger: Option<Ledger>) -> (tempfile::TempDir, Tree) {
        let place = tempfile::tempdir().unwrap();
        let source = std::fs::File::open(place.path()).unwrap();
        let tree = Tree::new(source.into(), config, ledger, None, false);
        (place, tree.unwrap())
    }

    #[test]
    fn restored_nodes_are_recorded_completely() {
        let ledger = Ledger::new().unwrap();
        let (_place, tree) = tree_with(&Config::default(), Some(ledger.clone()));
        let (nodes, root) = (&tree.nodes, &tree.root);
        let new = || NewInode {
            identity: Identity::by_number(0, 7, (0, 0)),
            mount: root.mount(),
            file_type: libc::S_IFREG,
            place: None,
        };
        let node = NodeId(9 << 32 | 300);
        let inode = nodes.insert_at(node, 3, new(), true).unwrap();
        assert_eq!(nodes.generation_max(), 9);
        // Two inodes there are one here.
        let twin = nodes.insert_at(NodeId(9 << 32 | 301), 1, new(), true);
        assert!(twin.is_some());
        assert_eq!(nodes.find_or_insert(new()).unwrap().0.node(), node);
        let entries = nodes.shards.iter().map(|shard| shard.lock().len());
        assert_eq!(entries.sum::<usize>(), 2, "and the root");
        let [from, to] = [c"old", c"new"].map(|name| Place::new(Arc::clone(root), name.to_owned()));
        nodes.record_move(&inode, [&from, &to]);
        let noted = StateTables::new(ledger).unwrap().read().unwrap().nodes;
        let noted = noted.iter().find(|noted| noted.node == node).unwrap();
        assert_eq!(noted.lookups, 4, "with that of now");
        let both = [from, to].map(|it| KnownName::new(NodeId::ROOT, it.name.to_bytes()));
        let noted = [noted.place.as_ref(), noted.other_place.as_ref()];
        assert_eq!(noted, both.each_ref().map(Some));
    }

    #[test]
    fn trees_of_any_depth_are_dropped() {
        let (_place, tree) = tree_with(&Config::default(), None);
        let mut parent = Arc::clone(&tree.root);
        for number in 0..100_000 {
            let new = NewInode {
                identity: Identity::by_number(0, 7 + number, (0, 0)),
                mount: tree.root.mount(),
                file_type: libc::S_IFDIR,
                place: Some(Place::new(parent, c"deeper".to_owned())),
            };
            parent = tree.nodes.find_or_insert(new).unwrap().0;
        }
        // The table drops the deepest directory last.
        drop(parent);
    }

    #[test]
    fn records_of_forgotten_nodes_take_no_memory() {
        const NODES: u64 = 20_000;
        const LEFT: u64 = 100;
        let ledger = Ledger::new().unwrap();
        let kib = || rustix::fs::fstat(&ledger).unwrap().st_blocks / 2;
        let (_place, tree) = tree_with(&Config::default(), Some(ledger.clone()));
        let (nodes, root) = (&tree.nodes, &tree.root);
        let insert = |number: u64| {
            let name = std::ffi::CString::new(format!("file-{number}")).unwrap();
            let new = NewInode {
                identity: Identity::by_number(0, number, (0, 0)),
                mount: root.mount(),
                file_type: libc::S_IFREG,
                place: Some(Place::new(Arc::clone(root), name)),
            };
            let inode = nodes.find_or_insert(new).unwrap().0;
            // As under a policy.
            let name = KnownName::new(NodeId::ROOT, format!("{number}").as_bytes());
            let names = &inode.names;
            assert!(names.record_if(tree.noting(&inode), name, 1, || true));
            inode.node()
        };
        let known: Vec<_> = (0..NODES).map(insert).collect();
        let full = kib();
        assert!(full > 1000 * NODES as i64 / 1024, "{full} KiB");
        let (left, forgotten) = known.split_at(LEFT as usize);
        forgotten
            .iter()
            .for_each(|node| nodes.forget(*node, 1).map_or((), drop));
        assert!(nodes.shrink());
        nodes.give_records_back();
        let empty = kib();
        assert!(empty < full / 50, "{empty} of {full} KiB");
        // Those that are left are there, and new ones: with numbers of their own, and beside them.
        let again: Vec<_> = (NODES..NODES + LEFT).map(insert).collect();
        assert!(kib() < full / 50);
        assert!(again.iter().all(|node| !known.contains(node)));
        let read = StateTables::new(ledger.clone()).unwrap().read().unwrap();
        let mut noted: Vec<_> = read.nodes.iter().map(|noted| noted.node).collect();
        noted.sort_unstable();
        let mut expected = [left, &again].concat();
        expected.sort_unstable();
        assert_eq!(noted, expected);
        let places = read
            .nodes
            .iter()
            .map(|noted| usize::from(noted.place.is_some()));
        let names = read.names.values().map(Vec::len);
        assert_eq!([places.sum::<usize>(), names.sum()], [expected.len(); 2]);
        assert!(read.highest[0] > 0, "of what was given back");
    }

    #[test]
    fn dormant_nodes_are_bounded_and_tables_shrink() {
        // With the root, a multiple of `FEW`.
        const NODES: usize = MANY + 999;
        let config = Config {
            export: true,
            exported_nodes_max: MANY / 2,
            ..Config::default()
        };
        let (_place, tree) = tree_with(&config, None);
        let nodes = &tree.nodes;
        let insert = |number: usize| {
            let new = NewInode {
                identity: Identity::by_number(0, number as u64, (0, 0)),
                mount: tree.root.mount(),
                file_type: libc::S_IFREG,
                place: None,
            };
            nodes.find_or_insert(new).unwrap().0.node()
        };
        let known: Vec<_> = (0..NODES).map(insert).collect();
        assert!(!nodes.shrink());
        let again: Vec<_> = (0..NODES).map(insert).collect();
        assert!(known == again, "each is one node");
        for node in &known {
            nodes.forget(*node, 1);
        }
        assert_eq!((nodes.len(), nodes.dormant_len()), (NODES + 1, 0));
        for node in &known {
            nodes.forget(*node, 1);
        }
        assert_eq!(nodes.dormant_len(), MANY / 2);
        assert_eq!(nodes.len(), MANY / 2 + 1, "and the root");
        let entries = nodes.shards.iter().map(|shard| shard.lock().len());
        assert_eq!(entries.sum::<usize>(), nodes.len());
        assert!(nodes.get(known[0]).is_err(), "the oldest is dropped");
        let oldest = known[NODES - MANY / 2];
        assert!(nodes.add_lookup(oldest).is_ok());
        assert!(nodes.shrink(), "the kernel has forgotten nearly all");
        assert!(!nodes.shrink(), "once");
        // Another node takes its place in the queue, but it stays known.
        nodes.forget(insert(0), 1);
        assert!(nodes.get(oldest).is_ok() && nodes.get(known[NODES - MANY / 2 + 1]).is_ok());
        nodes.forget(oldest, 1);
        assert!(nodes.get(known[NODES - MANY / 2 + 1]).is_err());
    }
}

//! The names of nodes, for rules on paths.
//!
//! A name has a record of its own, wherever there is room. The latest name of a node has the highest rank,
//! a growing number. A rename first records the new name as one that the node may have; so between any two
//! stores the ledger has the node's name, and perhaps one more.

use super::notes::Notes;
use super::records::{UNSURE, USED};
use crate::identity::KnownName;
use crate::slots::Free;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering;
use thrufs_abi::NodeId;

/// The rank below all names that were the latest once.
const LAST_RANK: u64 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    Latest,
    Last,
    /// The last, and uncertain.
    Unsure,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameNote {
    pub(crate) index: u32,
    pub(crate) name: KnownName,
    /// The node may or may not have it.
    pub(crate) is_unsure: bool,
}

pub(crate) type NamesRead = HashMap<NodeId, Vec<NameNote>>;

impl Notes {
    fn next_rank(&self) -> u64 {
        self.name_slots.rank.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn free_name(&self) -> Option<u32> {
        self.memory.begin();
        self.name_slots.are_used.store(true, Ordering::Relaxed);
        let mut free = self.name_slots.free.lock();
        if let Some(index) = free.indices.pop() {
            return Some(index);
        }
        let index = free.next;
        if u64::from(index) >= self.names.records_max() {
            return None;
        }
        free.next += 1;
        Some(index)
    }

    /// Whether there are names: not without a policy.
    pub(crate) fn has_names(&self) -> bool {
        self.name_slots.are_used.load(Ordering::Relaxed)
    }

    /// Records a name of a node with this rank. Returns its record, if there is room.
    pub(crate) fn note_name(&self, node: NodeId, name: &KnownName, rank: Rank) -> Option<u32> {
        let index = self.free_name().or_else(|| self.memory.incomplete())?;
        let (rank, state) = match rank {
            Rank::Latest => (self.next_rank(), USED),
            Rank::Last => (LAST_RANK, USED),
            Rank::Unsure => (LAST_RANK, USED | UNSURE),
        };
        self.names.commit(index, state, |record| {
            record.rank.store(rank);
            record.node.store(node.0);
            record.name.put(name.directory, &name.name)
        })?;
        Some(index)
    }

    /// Makes a recorded name certain, and the latest.
    pub(crate) fn name_is_latest(&self, index: u32) {
        if let Some(record) = self.names.at(index) {
            record.rank.store(self.next_rank());
            record.state.store(USED);
        }
    }

    /// A node has lost a name, or is forgotten.
    pub(crate) fn forget_name(&self, index: u32) {
        if let Some(record) = self.names.at(index) {
            record.state.store(0);
            self.name_slots.free.lock().indices.push(index);
        }
    }

    pub(super) fn read_names(&self) -> io::Result<NamesRead> {
        let mut ranked: HashMap<NodeId, Vec<(u64, NameNote)>> = HashMap::new();
        let (mut rank_max, mut end, mut used) = (0, 0, Vec::new());
        self.names.each(|index, record, state| {
            end = end.max(index + 1);
            let Some((directory, name)) = record.name.get() else {
                return;
            };
            used.push(index);
            let note = NameNote {
                index,
                name: KnownName::new(directory, name.to_bytes()),
                is_unsure: state & UNSURE != 0,
            };
            let rank = record.rank.load();
            rank_max = rank_max.max(rank);
            let node = NodeId(record.node.load());
            ranked.entry(node).or_default().push((rank, note));
        })?;
        self.name_slots
            .are_used
            .store(!used.is_empty(), Ordering::Relaxed);
        let mut used = used.into_iter().peekable();
        let free = (0..end).filter(|index| used.next_if_eq(index).is_none());
        *self.name_slots.free.lock() = Free {
            indices: free.collect(),
            next: end,
        };
        // No rank that was read makes the counter wrap.
        let rank = rank_max.min(u64::MAX >> 1);
        self.name_slots.rank.store(rank, Ordering::Relaxed);
        Ok(ranked
            .into_iter()
            .map(|(node, mut names)| {
                names.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
                (node, names.into_iter().map(|(_, note)| note).collect())
            })
            .collect())
    }
}

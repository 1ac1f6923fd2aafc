//! The names of nodes, for rules on paths.
//!
//! A name has a record of its own, wherever there is room. The latest name of a node has the highest rank,
//! a growing number. A rename first records the new name as one that the node may have; so between any two
//! stores the ledger has the node's name, and perhaps one more.

use super::memory::Memory;
use super::records::{NAMES, RankedName, UNSURE, USED};
use super::table::Table;
use crate::identity::KnownName;
use crate::slots::{Free, with_empty_blocks};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

/// The table of names, and which of its records are free.
pub(crate) struct NameTable {
    table: Table<RankedName>,
    free: Mutex<Free>,
    rank: AtomicU64,
    are_used: AtomicBool,
}

impl NameTable {
    pub(super) fn new(memory: &Arc<Memory>) -> NameTable {
        NameTable {
            table: Table::new(memory, NAMES),
            free: Mutex::default(),
            rank: AtomicU64::new(LAST_RANK),
            are_used: AtomicBool::new(false),
        }
    }

    /// All records are free, because the memory was wiped.
    pub(super) fn reset(&self) {
        *self.free.lock() = Free::default();
    }

    fn next_rank(&self) -> u64 {
        self.rank.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A free record, or the one behind the last.
    fn take(&self) -> u32 {
        self.are_used.store(true, Ordering::Relaxed);
        let mut free = self.free.lock();
        free.indices.pop().unwrap_or_else(|| {
            free.next = free.next.saturating_add(1);
            free.next - 1
        })
    }

    /// Whether there are names: not without a policy.
    pub(crate) fn are_used(&self) -> bool {
        self.are_used.load(Ordering::Relaxed)
    }

    /// Records a name of a node with this rank. Returns its record, if there is room.
    pub(crate) fn insert(&self, node: NodeId, name: &KnownName, rank: Rank) -> Option<u32> {
        let index = self.take();
        let (rank, state) = match rank {
            Rank::Latest => (self.next_rank(), USED),
            Rank::Last => (LAST_RANK, USED),
            Rank::Unsure => (LAST_RANK, USED | UNSURE),
        };
        self.table.commit(index, state, |record| {
            record.rank.store(rank);
            record.node.store(node.0);
            record.name.put(name.directory, &name.name)
        })?;
        Some(index)
    }

    /// Makes a recorded name certain, and the latest.
    pub(crate) fn make_latest(&self, index: u32) {
        if let Some(record) = self.table.at(index) {
            record.rank.store(self.next_rank());
            record.state.store(USED);
        }
    }

    /// A node has lost a name, or is forgotten.
    pub(crate) fn remove(&self, index: u32) {
        if let Some(record) = self.table.at(index) {
            record.state.store(0);
            self.free.lock().indices.push(index);
        }
    }

    /// Gives the memory of free records back.
    pub(crate) fn give_back(&self) {
        with_empty_blocks(&self.free, |blocks| {
            blocks.iter().for_each(|names| self.table.give_back(names));
        });
    }

    pub(super) fn read(&self) -> io::Result<NamesRead> {
        let mut ranked: HashMap<NodeId, Vec<(u64, NameNote)>> = HashMap::new();
        let (mut rank_max, mut end, mut used) = (0, 0, Vec::new());
        self.table.each(|index, record, state| {
            end = end.max(index + 1);
            let Some(name) = record.name.get() else {
                return;
            };
            used.push(index);
            let note = NameNote {
                index,
                name,
                is_unsure: state & UNSURE != 0,
            };
            let rank = record.rank.load();
            rank_max = rank_max.max(rank);
            let node = NodeId(record.node.load());
            ranked.entry(node).or_default().push((rank, note));
        })?;
        self.are_used.store(!used.is_empty(), Ordering::Relaxed);
        let mut used = used.into_iter().peekable();
        let free = (0..end).filter(|index| used.next_if_eq(index).is_none());
        *self.free.lock() = Free {
            indices: free.collect(),
            next: end,
        };
        // No rank that was read makes the counter wrap.
        let rank = rank_max.min(u64::MAX >> 1);
        self.rank.store(rank, Ordering::Relaxed);
        Ok(ranked
            .into_iter()
            .map(|(node, mut names)| {
                names.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
                (node, names.into_iter().map(|(_, note)| note).collect())
            })
            .collect())
    }
}

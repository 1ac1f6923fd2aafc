//! Under which names nodes are known, for rules on paths.
//!
//! A name has a record of its own, wherever there is room. Which of a node's names is the latest is told
//! by its rank, a number that grows. Whoever renames notes the new name first, as one that the node may
//! have; so between any two stores the ledger has the name that the node has, and perhaps one more.

use super::notes::{Notes, STATE, USED};
use super::read::name_at;
use crate::names::KnownName;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thrufs_abi::NodeId;

const RANK: usize = 8;
const NODE: usize = 16;
/// The directory; then, as places have it, the length of the name, and the name.
const DIRECTORY: usize = 24;
/// A bit of the state: the node may have it, or not.
const UNSURE: u64 = 2;

/// Behind all that were the latest once.
const LAST_RANK: u64 = 0;

/// Where a name stands among those of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    Latest,
    Last,
    /// The last, if it is one at all.
    Unsure,
}

/// Which records are free.
#[derive(Default)]
pub(super) struct NameSlots {
    free: Mutex<Free>,
    rank: AtomicU64,
    are_used: AtomicBool,
}

#[derive(Default)]
struct Free {
    indices: Vec<u32>,
    next: u32,
}

/// A name as it was noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameNote {
    pub(crate) index: u32,
    pub(crate) name: KnownName,
    /// It may have been given, or not.
    pub(crate) is_unsure: bool,
}

/// The names of each node, the latest first.
pub(crate) type NamesRead = HashMap<NodeId, Vec<NameNote>>;

impl Notes {
    fn next_rank(&self) -> u64 {
        self.name_slots.rank.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn free_name(&self) -> Option<u32> {
        self.begin();
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

    /// Whether any were noted: not where there is no policy.
    pub(crate) fn has_names(&self) -> bool {
        self.name_slots.are_used.load(Ordering::Relaxed)
    }

    /// Notes a name of a node at this place among its names. Where it is noted, if that is to be had.
    pub(crate) fn note_name(&self, node: NodeId, name: &KnownName, rank: Rank) -> Option<u32> {
        let Some(index) = self.free_name() else {
            self.incomplete();
            return None;
        };
        let record = self.record(&self.names, index)?;
        record.store(
            RANK,
            match rank {
                Rank::Latest => self.next_rank(),
                Rank::Last | Rank::Unsure => LAST_RANK,
            },
        );
        record.store(NODE, node.0);
        if !super::notes::put_name(record, DIRECTORY, name.directory, &name.name) {
            self.incomplete();
            return None;
        }
        record.store(
            STATE,
            match rank {
                Rank::Unsure => USED | UNSURE,
                Rank::Latest | Rank::Last => USED,
            },
        );
        Some(index)
    }

    /// A name that was noted is the latest, and no doubt about it.
    pub(crate) fn name_is_latest(&self, index: u32) {
        if let Some(record) = self.names.at(index) {
            record.store(RANK, self.next_rank());
            record.store(STATE, USED);
        }
    }

    /// A node has lost a name, or is forgotten.
    pub(crate) fn forget_name(&self, index: u32) {
        if let Some(record) = self.names.at(index) {
            record.store(STATE, 0);
            self.name_slots.free.lock().indices.push(index);
        }
    }

    /// Forgets which records have something in them.
    pub(super) fn free_all_names(&self) {
        *self.name_slots.free.lock() = Free::default();
    }

    pub(super) fn read_names(&self) -> io::Result<NamesRead> {
        let mut ranked: HashMap<NodeId, Vec<(u64, NameNote)>> = HashMap::new();
        let (mut rank_max, mut end, mut used) = (0, 0, Vec::new());
        self.each(&self.names, |index, record, state| {
            end = end.max(index + 1);
            let Some(name) = name_at(record, DIRECTORY) else {
                return;
            };
            used.push(index);
            let directory = NodeId(record.load(DIRECTORY));
            let note = NameNote {
                index,
                name: KnownName::new(directory, name.to_bytes()),
                is_unsure: state & UNSURE != 0,
            };
            let rank = record.load(RANK);
            rank_max = rank_max.max(rank);
            let node = NodeId(record.load(NODE));
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
        // Whatever a record says, counting on does not begin anew.
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

//! Writes the ledger: what the client knows, before it gets the answer. A record is complete or absent
//! between any two stores, because the process can be killed between them.

use super::audit_records::AuditRecords;
use super::memory::{Ledger, Memory};
use super::names::NameTable;
use super::opens::Opens;
use super::records::{
    DIRECTORIES, FILES, MOUNTS, NODES, Name, Node, OWNERS, Owner, PLACES, PLACES_OF_NODES, Places,
    USED,
};
use super::table::Table;
use super::words::join;
use crate::identity::Identity;
use crate::ids::{HandleWord, NodeWord, OwnerWord};
use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::ops::Range;
use std::sync::Arc;
use std::{fmt, io};
use thrufs_abi::{BackingId, FileHandle, LockOwner, NodeId};

/// Above the type of a node, what a guest was told of mapping the file.
pub(super) const DAX_SHIFT: u32 = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnerNote {
    #[serde(with = "NodeWord")]
    pub(crate) node: NodeId,
    #[serde(with = "OwnerWord")]
    pub(crate) owner: LockOwner,
    #[serde(with = "HandleWord")]
    pub(crate) handle: FileHandle,
    pub(crate) pid: u32,
}

/// The directory and the name at which a node was last seen.
pub(crate) type NotedPlace<'a> = (NodeId, &'a CStr);

/// A ledger that one file system writes to.
pub(crate) struct StateTables {
    pub(super) memory: Arc<Memory>,
    pub(super) nodes: Table<Node>,
    pub(super) places: Table<Places>,
    pub(crate) files: Opens,
    pub(crate) directories: Opens,
    pub(super) owners: Table<Owner>,
    pub(super) mounts: Table<Name>,
    pub(crate) names: NameTable,
    pub(crate) audit_records: AuditRecords,
}

impl fmt::Debug for StateTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateTables")
    }
}

impl StateTables {
    pub(crate) fn new(ledger: Ledger) -> io::Result<StateTables> {
        let memory = Arc::new(Memory::new(ledger)?);
        Ok(StateTables {
            nodes: Table::new(&memory, NODES),
            places: Table::new(&memory, PLACES_OF_NODES),
            files: Opens::new(&memory, FILES),
            directories: Opens::new(&memory, DIRECTORIES),
            owners: Table::new(&memory, OWNERS),
            mounts: Table::new(&memory, MOUNTS),
            names: NameTable::new(&memory),
            audit_records: AuditRecords::new(&memory),
            memory,
        })
    }

    /// Clears all. Only while no thread writes.
    pub(crate) fn wipe(&self) {
        self.memory.wipe();
        self.names.reset();
    }

    /// Whether a node that no client has asked for may be recorded. Before, the first record would wipe what an earlier
    /// process has left, or take the place of one that is still to be read.
    pub(crate) fn is_ready(&self) -> bool {
        self.memory.is_ready()
    }

    /// What an earlier process has left is in the tables again.
    pub(crate) fn set_ready(&self) {
        self.memory.set_ready();
    }

    /// A new node with one lookup. Under the lock of its identity.
    pub(crate) fn note_node(
        &self,
        node: NodeId,
        identity: &Identity,
        type_bits: u32,
        place: Option<NotedPlace<'_>>,
    ) {
        let index = node.0 as u32;
        let (kind, bytes) = identity.parts();
        let state = node.0 >> 32 << 32 | USED | place.map_or(0, |_| PLACES[0]);
        self.nodes.commit(index, state, |record| {
            record.lookups.store(1);
            record
                .mount_and_kind
                .store(join(identity.mount(), kind as u32));
            record
                .type_and_length
                .store(join(type_bits, bytes.len() as u32));
            if record.identity.put(bytes).is_none() {
                self.places.to_write(index)?.identity.put(bytes)?;
            }
            place.map_or(Some(()), |place| self.put_place(index, 0, place))
        });
    }

    fn put_place(&self, index: u32, which: usize, (parent, name): NotedPlace<'_>) -> Option<()> {
        let places = self.places.to_write(index)?;
        let put = places.two[which].put(parent, name.to_bytes());
        put.or_else(|| self.memory.incomplete())
    }

    /// The places at which a node may be found, instead of those before. Between any two stores, one of those
    /// or of these is there. Under the lock of its identity.
    pub(crate) fn note_places(&self, node: NodeId, places: &[NotedPlace<'_>]) {
        let index = node.0 as u32;
        let Some(record) = self.nodes.to_write(index) else {
            return;
        };
        let mut now = record.state.load();
        let mut wanted = 0;
        let mut missing = Vec::new();
        for &place in places {
            let there = (0..2).find(|&which| {
                let noted = self
                    .place(index, which)
                    .filter(|_| now & PLACES[which] != 0);
                noted.is_some_and(|it| (it.directory, &*it.name) == (place.0, place.1.to_bytes()))
            });
            match there {
                Some(which) => wanted |= PLACES[which],
                None => missing.push(place),
            }
        }
        for place in missing {
            // An unused record, or else the second of those that are not wanted.
            let unwanted = || (0..2).filter(|&which| wanted & PLACES[which] == 0);
            let unused = unwanted().find(|&which| now & PLACES[which] == 0);
            let Some(which) = unused.or_else(|| unwanted().next_back()) else {
                break;
            };
            now &= !PLACES[which];
            record.state.store(now);
            if self.put_place(index, which, place).is_none() {
                return;
            }
            wanted |= PLACES[which];
            now |= PLACES[which];
            record.state.store(now);
        }
        record.state.store(now & !(PLACES[0] | PLACES[1]) | wanted);
    }

    #[inline]
    pub(crate) fn add_lookups(&self, node: NodeId, more: u64) {
        if let Some(record) = self.nodes.at(node.0 as u32) {
            record.lookups.add(more);
        }
    }

    /// What a guest was told of mapping a file. Not from two threads at once.
    pub(crate) fn note_dax(&self, node: NodeId, told: u8) {
        if let Some(record) = self.nodes.at(node.0 as u32) {
            let word = &record.type_and_length;
            let others = word.load() & !(u64::from(u8::MAX) << DAX_SHIFT);
            word.store(others | u64::from(told) << DAX_SHIFT);
        }
    }

    /// The state and the lookups that are recorded of a node, for a log.
    pub(crate) fn recorded_of(&self, node: NodeId) -> Option<(u64, i64)> {
        let record = self.nodes.at(node.0 as u32)?;
        Some((record.state.load(), record.lookups.load().cast_signed()))
    }

    /// Frees a node that the client has forgotten, before its slot is used again.
    pub(crate) fn forget_node(&self, node: NodeId) {
        self.nodes.free(node.0);
    }

    /// Gives the memory of free nodes back, whose generations were up to `highest`. None of them is used
    /// meanwhile.
    pub(crate) fn give_nodes_back(&self, nodes: &[Range<u32>], highest: u32) {
        // First, so that no id is used again.
        self.memory.header().generation.raise(u64::from(highest));
        for nodes in nodes {
            self.nodes.give_back(nodes);
            self.places.give_back(nodes);
        }
    }

    /// The threads that were told to try again, instead of those before.
    pub(crate) fn note_retrying(&self, threads: impl Iterator<Item = u32>) {
        let all = threads.chain(std::iter::repeat(0));
        for (word, thread) in self.memory.header().retrying.iter().zip(all) {
            word.store(thread.into());
        }
    }

    /// The threads that were told to try again.
    pub(crate) fn retrying(&self) -> impl Iterator<Item = u32> {
        let words = self.memory.header().retrying.iter();
        words
            .map(|word| word.load() as u32)
            .filter(|thread| *thread != 0)
    }

    /// A registration for passthrough.
    pub(crate) fn note_backing(&self, id: BackingId) {
        let id = u64::from(id.0.cast_unsigned());
        self.memory.header().backing.raise(id);
    }

    /// The highest registration that was noted.
    pub(crate) fn highest_backing(&self) -> BackingId {
        let id = self.memory.header().backing.load();
        BackingId(i32::try_from(id).unwrap_or(i32::MAX))
    }

    pub(crate) fn note_owner(&self, index: u32, note: OwnerNote) {
        self.owners.commit(index, USED, |record| {
            record.node.store(note.node.0);
            record.owner.store(note.owner.0);
            record.handle.store(note.handle.0);
            record.process.store(u64::from(note.pid));
            Some(())
        });
    }

    pub(crate) fn forget_owner(&self, index: u32) {
        self.owners.free(u64::from(index));
    }

    /// A submount, by its mount point.
    pub(crate) fn note_mount(&self, number: u32, parent: NodeId, name: &CStr) {
        let name = name.to_bytes();
        self.mounts
            .commit(number, USED, |record| record.put(parent, name));
    }

    pub(crate) fn forget_mount(&self, number: u32) {
        self.mounts.free(u64::from(number));
    }
}

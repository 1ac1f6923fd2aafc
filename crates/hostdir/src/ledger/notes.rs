//! Writes the ledger: what the client knows, before it gets the answer. A record is complete or absent
//! between any two stores, because the process can be killed between them.

use super::memory::{Ledger, Memory};
use super::name_slots::NameSlots;
use super::opener::OpenerIds;
use super::records::{
    DIRECTORIES, FILES, MOUNTS, NAMES, NODES, Name, Node, OWNERS, Open, Owner, PLACES,
    PLACES_OF_NODES, Places, RankedName, TOLD_RECORDS, Told, USED,
};
use super::route::Route;
use super::table::Table;
use super::telling::Tellings;
use crate::identity::Identity;
use crate::slots::{Free, with_empty_blocks};
use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};
use thrufs_abi::{FileHandle, LockOwner, NodeId};

/// Above the type of a node, what a guest was told of mapping the file.
pub(super) const DAX_SHIFT: u32 = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileNote {
    #[serde(with = "HandleWord")]
    pub(crate) handle: FileHandle,
    #[serde(with = "NodeWord")]
    pub(crate) node: NodeId,
    pub(crate) flags: i32,
    /// Its data path, if a policy may have chosen it.
    pub(crate) route: Option<Route>,
    /// User and group that opened it, under a policy.
    pub(crate) opener: OpenerIds,
}

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

#[derive(Serialize, Deserialize)]
#[serde(remote = "NodeId")]
struct NodeWord(u64);

#[derive(Serialize, Deserialize)]
#[serde(remote = "FileHandle")]
struct HandleWord(u64);

#[derive(Serialize, Deserialize)]
#[serde(remote = "LockOwner")]
struct OwnerWord(u64);

/// The directory and the name at which a node was last seen.
pub(crate) type NotedPlace<'a> = (NodeId, &'a CStr);

/// A ledger that one file system writes to.
pub(crate) struct Notes {
    pub(super) memory: Arc<Memory>,
    pub(super) nodes: Table<Node>,
    pub(super) places: Table<Places>,
    pub(super) files: Table<Open>,
    pub(super) directories: Table<Open>,
    pub(super) owners: Table<Owner>,
    pub(super) mounts: Table<Name>,
    pub(super) names: Table<RankedName>,
    pub(super) name_slots: NameSlots,
    pub(super) told: Table<Told>,
    pub(super) tellings: Tellings,
}

fn state(id: u64) -> u64 {
    (id >> 32) << 32 | USED
}

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notes")
    }
}

impl Notes {
    pub(crate) fn new(ledger: Ledger) -> io::Result<Notes> {
        let memory = Arc::new(Memory::new(ledger)?);
        Ok(Notes {
            nodes: Table::new(&memory, NODES),
            places: Table::new(&memory, PLACES_OF_NODES),
            files: Table::new(&memory, FILES),
            directories: Table::new(&memory, DIRECTORIES),
            owners: Table::new(&memory, OWNERS),
            mounts: Table::new(&memory, MOUNTS),
            names: Table::new(&memory, NAMES),
            name_slots: NameSlots::default(),
            told: Table::new(&memory, TOLD_RECORDS),
            tellings: Tellings::default(),
            memory,
        })
    }

    /// Clears all. Only while no thread writes.
    pub(crate) fn wipe(&self) {
        self.memory.wipe();
        *self.name_slots.free.lock() = Free::default();
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
        let state = state(node.0) | place.map_or(0, |_| PLACES[0]);
        self.nodes.commit(index, state, |record| {
            record.lookups.store(1);
            record
                .mount_and_kind
                .store(halves(identity.mount(), kind as u32));
            record
                .type_and_length
                .store(halves(type_bits, bytes.len() as u32));
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
                noted.is_some_and(|(parent, name)| (parent, name.as_c_str()) == place)
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

    /// Gives the memory of free names back.
    pub(crate) fn give_names_back(&self) {
        with_empty_blocks(&self.name_slots.free, |blocks| {
            blocks.iter().for_each(|names| self.names.give_back(names));
        });
    }

    pub(crate) fn note_file(&self, note: FileNote) {
        note_open(&self.files, note);
    }

    pub(crate) fn note_directory(&self, note: FileNote) {
        note_open(&self.directories, note);
    }

    /// The route of a file's data.
    pub(crate) fn note_route(&self, handle: FileHandle, route: Route, flags: i32) {
        if let Some(file) = self.files.at(handle.0 as u32) {
            file.route_and_flags
                .store(route_and_flags(Some(route), flags));
        }
    }

    /// When a redacted file was last changed, if through this handle.
    pub(crate) fn note_left(&self, handle: FileHandle, changed: Option<Duration>) {
        if let Some(file) = self.files.at(handle.0 as u32) {
            file.left
                .store(changed.map_or(0, |time| time.as_nanos() as u64));
        }
    }

    /// User and group that opened a file.
    pub(crate) fn note_opener(&self, handle: FileHandle, opener: OpenerIds) {
        if let Some(file) = self.files.at(handle.0 as u32) {
            file.opener.store(opener.word());
        }
    }

    pub(crate) fn note_opener_of_directory(&self, handle: FileHandle, opener: OpenerIds) {
        if let Some(directory) = self.directories.at(handle.0 as u32) {
            directory.opener.store(opener.word());
        }
    }

    /// The kind of lock that an open file has, as a number of the ledger.
    pub(crate) fn note_flock(&self, handle: FileHandle, kind: u8) {
        if let Some(file) = self.files.at(handle.0 as u32) {
            file.flock.store(u64::from(kind));
        }
    }

    /// Frees a released file, before its slot is used again.
    pub(crate) fn forget_file(&self, handle: FileHandle) {
        self.files.free(handle.0);
    }

    pub(crate) fn forget_directory(&self, handle: FileHandle) {
        self.directories.free(handle.0);
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

fn note_open(table: &Table<Open>, note: FileNote) {
    table.commit(note.handle.0 as u32, state(note.handle.0), |record| {
        record.node.store(note.node.0);
        record
            .route_and_flags
            .store(route_and_flags(note.route, note.flags));
        record.flock.store(0);
        record.left.store(0);
        record.opener.store(note.opener.word());
        Some(())
    });
}

fn route_and_flags(route: Option<Route>, flags: i32) -> u64 {
    halves(route.map_or(0, u32::from), flags as u32)
}

fn halves(upper: u32, lower: u32) -> u64 {
    u64::from(upper) << 32 | u64::from(lower)
}

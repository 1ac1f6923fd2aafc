//! Writes the ledger: what the client knows, before it gets the answer. A record is complete or absent
//! between any two stores, because the process can be killed between them.

use super::memory::Ledger;
use super::name_slots::{Free, NameSlots};
use super::opener::OpenerIds;
use super::route::Route;
use super::table::{
    DIRECTORIES, FILES, GENERATIONS_AT, INCOMPLETE_AT, LEDGER_BYTES, MAGIC, MAGIC_AT, MOUNTS,
    NAMES, NODES, OWNERS, PLACES, Record, TELLINGS, Table, map_header,
};
use super::telling::Tellings;
use crate::identity::{HANDLE_BYTES_MAX, Identity};
use crate::slots::empty_blocks;
use rustix::fs::FallocateFlags;
use std::ffi::{CStr, CString};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Once;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{fmt, io};
use thrufs_abi::{FileHandle, LockOwner, NodeId};
use thrufs_sys::shared_memory::SharedMapping;

/// Bits of a state, below the generation.
pub(super) const USED: u64 = 1;
pub(super) const FIRST_PLACE: u64 = 2;
pub(super) const SECOND_PLACE: u64 = 4;
/// Of the two records of places.
const PLACE_BITS: [u64; 2] = [FIRST_PLACE, SECOND_PLACE];

pub(super) const STATE: usize = 0;

// Nodes.
pub(super) const LOOKUPS: usize = 8;
/// Mount and kind of the identity, type and length of the identity: 32 bits each.
pub(super) const MOUNT_AND_KIND: usize = 16;
pub(super) const TYPE_AND_LENGTH: usize = 24;
/// Above the type, what a guest was told of mapping the file.
pub(super) const DAX_SHIFT: u32 = 48;
pub(super) const IDENTITY: usize = 32;
pub(super) const IDENTITY_ROOM: usize = 32;

// Places: parent, length of the name, name.
pub(super) const PLACE_BYTES: usize = 272;
pub(super) const PLACE_LENGTH: usize = 8;
pub(super) const PLACE_NAME: usize = 16;
pub(super) const NAME_MAX: usize = 255;
pub(super) const LONG_IDENTITY: usize = 2 * PLACE_BYTES;

// Files, directories, owners.
pub(super) const NODE: usize = 8;
pub(super) const FLAGS: usize = 16;
pub(super) const FLOCK: usize = 24;
pub(super) const LEFT: usize = 32;
pub(super) const OPENER: usize = 40;
pub(super) const OWNER: usize = 16;
pub(super) const HANDLE: usize = 24;
pub(super) const PROCESS: usize = 32;

const _: () =
    assert!(LONG_IDENTITY + HANDLE_BYTES_MAX <= 704 && PLACE_NAME + NAME_MAX < PLACE_BYTES);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileNote {
    pub(crate) handle: FileHandle,
    pub(crate) node: NodeId,
    pub(crate) flags: i32,
    /// Its data path, if a policy may have chosen it.
    pub(crate) route: Option<Route>,
    /// User and group that opened it, under a policy.
    pub(crate) opener: OpenerIds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnerNote {
    pub(crate) node: NodeId,
    pub(crate) owner: LockOwner,
    pub(crate) handle: FileHandle,
    pub(crate) pid: u32,
}

/// The directory and the name at which a node was last seen.
pub(crate) type NotedPlace<'a> = (NodeId, &'a CStr);

/// A ledger that one file system writes to.
pub(crate) struct Notes {
    pub(super) ledger: Ledger,
    pub(super) header: SharedMapping,
    pub(super) nodes: Table,
    pub(super) places: Table,
    pub(super) files: Table,
    pub(super) directories: Table,
    pub(super) owners: Table,
    pub(super) mounts: Table,
    pub(super) names: Table,
    pub(super) name_slots: NameSlots,
    pub(super) told: Table,
    pub(super) tellings: Tellings,
    /// Run once: what an earlier process has left is either resumed, or wiped before the first record.
    pub(super) begun: Once,
}

/// The directory and the name that [`Notes::put_name`] has written.
pub(super) fn name_at(record: Record<'_>, at: usize) -> Option<(NodeId, CString)> {
    let length = usize::try_from(record.load(at + PLACE_LENGTH)).ok()?;
    if length > NAME_MAX {
        return None;
    }
    let mut name = vec![0; length];
    record.get(at + PLACE_NAME, &mut name).ok()?;
    Some((NodeId(record.load(at)), CString::new(name).ok()?))
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
        let header = map_header(ledger.as_fd())?;
        Ok(Notes {
            ledger,
            header,
            nodes: Table::new(NODES),
            places: Table::new(PLACES),
            files: Table::new(FILES),
            directories: Table::new(DIRECTORIES),
            owners: Table::new(OWNERS),
            mounts: Table::new(MOUNTS),
            names: Table::new(NAMES),
            name_slots: NameSlots::default(),
            told: Table::new(TELLINGS),
            tellings: Tellings::default(),
            begun: Once::new(),
        })
    }

    pub(super) fn memory(&self) -> BorrowedFd<'_> {
        self.ledger.as_fd()
    }

    pub(super) fn begin(&self) {
        if !self.begun.is_completed() {
            self.begun.call_once(|| self.wipe());
        }
    }

    /// Clears all. Only while no thread writes.
    pub(crate) fn wipe(&self) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(error) = rustix::fs::fallocate(self.memory(), flags, 0, LEDGER_BYTES) {
            tracing::warn!(%error, "cannot clear the ledger: the session cannot be resumed");
            self.incomplete();
        }
        *self.name_slots.free.lock() = Free::default();
        let _ = self.header.store_u64(MAGIC_AT, MAGIC, Ordering::Release);
    }

    #[cold]
    pub(super) fn incomplete(&self) {
        let _ = self.header.store_u64(INCOMPLETE_AT, 1, Ordering::Release);
    }

    pub(super) fn record<'a>(&'a self, table: &'a Table, index: u32) -> Option<Record<'a>> {
        self.begin();
        let record = table.at_or_grow(index, self.memory(), &self.header);
        if record.is_none() {
            self.incomplete();
        }
        record
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
        let Some(record) = self.record(&self.nodes, index) else {
            return;
        };
        let (kind, bytes) = identity.parts();
        let mount = u64::from(identity.mount());
        let length = bytes.len() as u64;
        record.store(LOOKUPS, 1);
        record.store(MOUNT_AND_KIND, mount << 32 | u64::from(kind as u32));
        record.store(TYPE_AND_LENGTH, u64::from(type_bits) << 32 | length);
        if bytes.len() <= IDENTITY_ROOM {
            record.put(IDENTITY, bytes);
        } else if let Some(place) = self.record(&self.places, index) {
            place.put(LONG_IDENTITY, bytes);
        } else {
            return;
        }
        let mut bits = state(node.0);
        if let Some(place) = place {
            if !self.put_place(index, 0, place) {
                return;
            }
            bits |= FIRST_PLACE;
        }
        record.store(STATE, bits);
    }

    fn put_place(&self, index: u32, which: usize, (parent, name): NotedPlace<'_>) -> bool {
        self.record(&self.places, index).is_some_and(|record| {
            self.put_name(record, which * PLACE_BYTES, parent, name.to_bytes())
        })
    }

    /// Writes a directory and a name; false for a name that is too long.
    pub(super) fn put_name(
        &self,
        record: Record<'_>,
        at: usize,
        directory: NodeId,
        name: &[u8],
    ) -> bool {
        if name.len() > NAME_MAX {
            self.incomplete();
            return false;
        }
        record.store(at, directory.0);
        record.store(at + PLACE_LENGTH, name.len() as u64);
        record.put(at + PLACE_NAME, name);
        true
    }

    /// The places at which a node may be found, instead of those before. Between any two stores, one of those
    /// or of these is there. Under the lock of its identity.
    pub(crate) fn note_places(&self, node: NodeId, places: &[NotedPlace<'_>]) {
        let index = node.0 as u32;
        let Some(record) = self.record(&self.nodes, index) else {
            return;
        };
        let mut now = record.load(STATE);
        let mut wanted = 0;
        let mut missing = Vec::new();
        for &place in places {
            let there = (0..2).find(|&which| {
                let noted = self
                    .place(index, which)
                    .filter(|_| now & PLACE_BITS[which] != 0);
                noted.is_some_and(|(parent, name)| (parent, name.as_c_str()) == place)
            });
            match there {
                Some(which) => wanted |= PLACE_BITS[which],
                None => missing.push(place),
            }
        }
        for place in missing {
            // An unused record, or else the second of those that are not wanted.
            let unwanted = || (0..2).filter(|&which| wanted & PLACE_BITS[which] == 0);
            let unused = unwanted().find(|&which| now & PLACE_BITS[which] == 0);
            let Some(which) = unused.or_else(|| unwanted().next_back()) else {
                break;
            };
            now &= !PLACE_BITS[which];
            record.store(STATE, now);
            if !self.put_place(index, which, place) {
                return;
            }
            wanted |= PLACE_BITS[which];
            now |= PLACE_BITS[which];
            record.store(STATE, now);
        }
        record.store(STATE, now & !(FIRST_PLACE | SECOND_PLACE) | wanted);
    }

    #[inline]
    pub(crate) fn add_lookups(&self, node: NodeId, more: u64) {
        if let Some(record) = self.nodes.at(node.0 as u32) {
            record.add(LOOKUPS, more);
        }
    }

    /// What a guest was told of mapping a file. Not from two threads at once.
    pub(crate) fn note_dax(&self, node: NodeId, told: u8) {
        if let Some(record) = self.nodes.at(node.0 as u32) {
            let others = record.load(TYPE_AND_LENGTH) & !(u64::from(u8::MAX) << DAX_SHIFT);
            record.store(TYPE_AND_LENGTH, others | u64::from(told) << DAX_SHIFT);
        }
    }

    /// Frees a node that the client has forgotten, before its slot is used again.
    pub(crate) fn forget_node(&self, node: NodeId) {
        self.free(&self.nodes, node.0);
    }

    /// Gives the memory of free nodes back, whose generations were up to `highest`. None of them is used
    /// meanwhile.
    pub(crate) fn give_nodes_back(&self, nodes: &[Range<u32>], highest: u32) {
        // First, so that no id is used again.
        let word = self.header.load_u64(GENERATIONS_AT, Ordering::Acquire);
        let highest = u64::from(highest).max(word.unwrap_or(0));
        let _ = self
            .header
            .store_u64(GENERATIONS_AT, highest, Ordering::Release);
        for nodes in nodes {
            self.give_back(&self.nodes, nodes);
            self.give_back(&self.places, nodes);
        }
    }

    /// Gives the memory of free names back.
    pub(crate) fn give_names_back(&self) {
        let mut free = std::mem::take(&mut self.name_slots.free.lock().indices);
        for names in empty_blocks(&mut free) {
            self.give_back(&self.names, &names);
        }
        let mut slots = self.name_slots.free.lock();
        let freed_meanwhile = std::mem::replace(&mut slots.indices, free);
        slots.indices.extend(freed_meanwhile);
    }

    fn give_back(&self, table: &Table, records: &Range<u32>) {
        let (at, bytes) = table.bytes_of(records);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(error) = rustix::fs::fallocate(self.memory(), flags, at, bytes) {
            tracing::debug!(%error, "cannot give memory of the ledger back");
        }
    }

    /// Keeps the generation, so that no id is used again.
    fn free(&self, table: &Table, id: u64) {
        if let Some(record) = table.at(id as u32)
            && record.load(STATE) >> 32 == id >> 32
        {
            record.store(STATE, (id >> 32) << 32);
        }
    }

    pub(crate) fn note_file(&self, note: FileNote) {
        self.note_open(&self.files, note);
    }

    pub(crate) fn note_directory(&self, note: FileNote) {
        self.note_open(&self.directories, note);
    }

    fn note_open(&self, table: &Table, note: FileNote) {
        if let Some(record) = self.record(table, note.handle.0 as u32) {
            record.store(NODE, note.node.0);
            record.store(FLAGS, route_and_flags(note.route, note.flags));
            record.store(FLOCK, 0);
            record.store(LEFT, 0);
            record.store(OPENER, note.opener.word());
            record.store(STATE, state(note.handle.0));
        }
    }

    /// The route of a file's data.
    pub(crate) fn note_route(&self, handle: FileHandle, route: Route, flags: i32) {
        change(
            &self.files,
            handle,
            FLAGS,
            route_and_flags(Some(route), flags),
        );
    }

    /// When a redacted file was last changed, if through this handle.
    pub(crate) fn note_left(&self, handle: FileHandle, changed: Option<Duration>) {
        let word = changed.map_or(0, |time| time.as_nanos() as u64);
        change(&self.files, handle, LEFT, word);
    }

    /// User and group that opened a file.
    pub(crate) fn note_opener(&self, handle: FileHandle, opener: OpenerIds) {
        change(&self.files, handle, OPENER, opener.word());
    }

    pub(crate) fn note_opener_of_directory(&self, handle: FileHandle, opener: OpenerIds) {
        change(&self.directories, handle, OPENER, opener.word());
    }

    /// The kind of lock that an open file has, as a number of the ledger.
    pub(crate) fn note_flock(&self, handle: FileHandle, kind: u8) {
        change(&self.files, handle, FLOCK, u64::from(kind));
    }

    /// Frees a released file, before its slot is used again.
    pub(crate) fn forget_file(&self, handle: FileHandle) {
        self.free(&self.files, handle.0);
    }

    pub(crate) fn forget_directory(&self, handle: FileHandle) {
        self.free(&self.directories, handle.0);
    }

    pub(crate) fn note_owner(&self, index: u32, note: OwnerNote) {
        if let Some(record) = self.record(&self.owners, index) {
            record.store(NODE, note.node.0);
            record.store(OWNER, note.owner.0);
            record.store(HANDLE, note.handle.0);
            record.store(PROCESS, u64::from(note.pid));
            record.store(STATE, USED);
        }
    }

    pub(crate) fn forget_owner(&self, index: u32) {
        self.free(&self.owners, u64::from(index));
    }

    /// A submount, by its mount point.
    pub(crate) fn note_mount(&self, number: u32, parent: NodeId, name: &CStr) {
        if let Some(record) = self.record(&self.mounts, number)
            && self.put_name(record, NODE, parent, name.to_bytes())
        {
            record.store(STATE, USED);
        }
    }

    pub(crate) fn forget_mount(&self, number: u32) {
        self.free(&self.mounts, u64::from(number));
    }
}

/// Changes a word of an open file or directory.
fn change(table: &Table, handle: FileHandle, field: usize, word: u64) {
    if let Some(record) = table.at(handle.0 as u32) {
        record.store(field, word);
    }
}

fn route_and_flags(route: Option<Route>, flags: i32) -> u64 {
    u64::from(route.map_or(0, Route::number)) << 32 | u64::from(flags as u32)
}

//! Reads what an earlier process has recorded.

use super::names::NamesRead;
use super::notes::{
    DAX_SHIFT, FIRST_PLACE, FLAGS, FLOCK, FileNote, HANDLE, IDENTITY, IDENTITY_ROOM, LEFT,
    LONG_IDENTITY, LOOKUPS, MOUNT_AND_KIND, NODE, Notes, OPENER, OWNER, OwnerNote, PLACE_BYTES,
    PROCESS, SECOND_PLACE, STATE, TYPE_AND_LENGTH, USED, name_at,
};
use super::opener::OpenerIds;
use super::route::Route;
use super::table::{GENERATIONS_AT, INCOMPLETE_AT, MAGIC, MAGIC_AT, Record, Table};
use crate::identity::{HANDLE_BYTES_MAX, Identity};
use std::ffi::CString;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thrufs_abi::{FileHandle, LockOwner, NodeId};

pub(crate) struct NodeRecord {
    pub(crate) node: NodeId,
    pub(crate) lookups: u64,
    pub(crate) file_type: u32,
    /// What a guest was told of mapping it.
    pub(crate) dax: u8,
    pub(crate) identity: Identity,
    /// Where it may be: two if it had two names, or was being moved.
    pub(crate) places: Vec<(NodeId, CString)>,
}

pub(crate) struct OpenRecord {
    pub(crate) note: FileNote,
    /// The number of its `flock(2)`.
    pub(crate) flock: u8,
    /// When it was last changed through this handle.
    pub(crate) left: Option<Duration>,
    /// Its recorded route does not exist.
    pub(crate) has_no_route: bool,
}

#[derive(Default)]
pub(crate) struct Records {
    pub(crate) nodes: Vec<NodeRecord>,
    pub(crate) files: Vec<OpenRecord>,
    pub(crate) directories: Vec<OpenRecord>,
    /// By their index.
    pub(crate) owners: Vec<(u32, OwnerNote)>,
    /// Numbers, directories and names.
    pub(crate) mounts: Vec<(u32, NodeId, CString)>,
    pub(crate) names: NamesRead,
    /// The highest generations of nodes, files and directories.
    pub(crate) highest: [u32; 3],
}

impl Notes {
    /// Reads all records and resumes the ledger. Invalid records are left out. Fails with `InvalidData` for
    /// what is no ledger, or incomplete; those of `mmap(2)`.
    pub(crate) fn read(&self) -> io::Result<Records> {
        self.begun.call_once(|| {});
        let header = |at| self.header.load_u64(at, Ordering::Acquire).unwrap_or(0);
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
        match header(MAGIC_AT) {
            MAGIC => {}
            // A new session: its client knows the root.
            0 => {
                self.wipe();
                return Ok(Records::default());
            }
            _ => return Err(invalid("this is no ledger")),
        }
        if header(INCOMPLETE_AT) != 0 {
            return Err(invalid("the session was too large for the ledger"));
        }
        let mut records = Records::default();
        let mut highest = [0; 3];
        highest[0] = self.each(&self.nodes, |index, record, state| {
            records.nodes.extend(self.node(index, record, state));
        })?;
        highest[1] = self.each(&self.files, |index, record, state| {
            records.files.push(open(index, record, state));
        })?;
        highest[2] = self.each(&self.directories, |index, record, state| {
            records.directories.push(open(index, record, state));
        })?;
        self.each(&self.owners, |index, record, _| {
            let note = OwnerNote {
                node: NodeId(record.load(NODE)),
                owner: LockOwner(record.load(OWNER)),
                handle: FileHandle(record.load(HANDLE)),
                pid: record.load(PROCESS) as u32,
            };
            records.owners.push((index, note));
        })?;
        self.each(&self.mounts, |number, record, _| {
            let place = name_at(record, NODE);
            let mount = place.map(|(parent, name)| (number, parent, name));
            records.mounts.extend(mount);
        })?;
        records.names = self.read_names()?;
        self.read_tellings()?;
        let given_back = header(GENERATIONS_AT).min(u64::from(u32::MAX));
        highest[0] = highest[0].max(given_back as u32);
        records.highest = highest;
        Ok(records)
    }

    /// Visits each record in use; returns the highest generation.
    pub(super) fn each<'a>(
        &'a self,
        table: &'a Table,
        mut found: impl FnMut(u32, Record<'a>, u64),
    ) -> io::Result<u32> {
        let mapped = table.map_used(self.memory(), &self.header)?;
        let mut highest = 0;
        for (index, record) in (0..mapped).filter_map(|index| Some((index, table.at(index)?))) {
            let state = record.load(STATE);
            highest = highest.max((state >> 32) as u32);
            if state & USED != 0 {
                found(index, record, state);
            }
        }
        Ok(highest)
    }

    fn node(&self, index: u32, record: Record<'_>, state: u64) -> Option<NodeRecord> {
        let node = NodeId((state >> 32) << 32 | u64::from(index));
        let lookups = match record.load(LOOKUPS).cast_signed() {
            // It was being forgotten.
            0 => return None,
            // Forgotten more often than looked up: the count is unknown.
            negative if negative < 0 => 1,
            lookups => lookups.cast_unsigned(),
        };
        let (mount, kind) = halves(record.load(MOUNT_AND_KIND));
        let type_and_length = record.load(TYPE_AND_LENGTH);
        let (file_type, length) = halves(type_and_length);
        let length = length as usize;
        if length > HANDLE_BYTES_MAX {
            return None;
        }
        let mut bytes = vec![0; length];
        if length <= IDENTITY_ROOM {
            record.get(IDENTITY, &mut bytes).ok()?;
        } else {
            let beside = self.places.at_or_grow(index, self.memory(), &self.header)?;
            beside.get(LONG_IDENTITY, &mut bytes).ok()?;
        }
        let of = |(which, bit): (usize, u64)| self.place(index, which).filter(|_| state & bit != 0);
        let places = [(0, FIRST_PLACE), (1, SECOND_PLACE)];
        Some(NodeRecord {
            node,
            lookups,
            file_type: file_type & libc::S_IFMT,
            dax: (type_and_length >> DAX_SHIFT) as u8,
            identity: Identity::from_parts(mount, kind.cast_signed(), &bytes)?,
            places: places.into_iter().filter_map(of).collect(),
        })
    }

    pub(super) fn place(&self, index: u32, which: usize) -> Option<(NodeId, CString)> {
        let record = self.places.at_or_grow(index, self.memory(), &self.header)?;
        name_at(record, which * PLACE_BYTES)
    }
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

fn open(index: u32, record: Record<'_>, state: u64) -> OpenRecord {
    let (route, flags) = halves(record.load(FLAGS));
    let known = Route::from_number(route);
    OpenRecord {
        note: FileNote {
            handle: FileHandle((state >> 32) << 32 | u64::from(index)),
            node: NodeId(record.load(NODE)),
            flags: flags.cast_signed(),
            route: known,
            opener: OpenerIds::from_word(record.load(OPENER)),
        },
        flock: record.load(FLOCK) as u8,
        left: Some(Duration::from_nanos(record.load(LEFT))).filter(|time| !time.is_zero()),
        has_no_route: route != 0 && known.is_none(),
    }
}

//! Reads what an earlier process has recorded.

use super::names::NamesRead;
use super::notes::{DAX_SHIFT, FileNote, Notes, OwnerNote};
use super::opener::OpenerIds;
use super::records::{MAGIC, Node, Open, PLACES};
use super::route::Route;
use crate::identity::Identity;
use std::ffi::CString;
use std::io;
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
        self.memory.resume();
        let header = self.memory.header();
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
        match header.magic.load() {
            MAGIC => {}
            // A new session: its client knows the root.
            0 => {
                self.wipe();
                return Ok(Records::default());
            }
            _ => return Err(invalid("this is no ledger")),
        }
        if header.incomplete.load() != 0 {
            return Err(invalid("the session was too large for the ledger"));
        }
        let mut records = Records::default();
        let mut highest = [0; 3];
        highest[0] = self.nodes.each(|index, record, state| {
            records.nodes.extend(self.node(index, record, state));
        })?;
        highest[1] = self.files.each(|index, record, state| {
            records.files.push(open(index, record, state));
        })?;
        highest[2] = self.directories.each(|index, record, state| {
            records.directories.push(open(index, record, state));
        })?;
        self.owners.each(|index, record, _| {
            let note = OwnerNote {
                node: NodeId(record.node.load()),
                owner: LockOwner(record.owner.load()),
                handle: FileHandle(record.handle.load()),
                pid: record.process.load() as u32,
            };
            records.owners.push((index, note));
        })?;
        self.mounts.each(|number, record, _| {
            let place = record.get();
            let mount = place.map(|(parent, name)| (number, parent, name));
            records.mounts.extend(mount);
        })?;
        records.names = self.read_names()?;
        self.read_tellings()?;
        let given_back = header.generation.load().min(u64::from(u32::MAX));
        highest[0] = highest[0].max(given_back as u32);
        records.highest = highest;
        Ok(records)
    }

    fn node(&self, index: u32, record: &Node, state: u64) -> Option<NodeRecord> {
        let node = NodeId((state >> 32) << 32 | u64::from(index));
        let lookups = match record.lookups.load().cast_signed() {
            // It was being forgotten.
            0 => return None,
            // Forgotten more often than looked up: the count is unknown.
            negative if negative < 0 => 1,
            lookups => lookups.cast_unsigned(),
        };
        let (mount, kind) = halves(record.mount_and_kind.load());
        let type_and_length = record.type_and_length.load();
        let (file_type, length) = halves(type_and_length);
        let beside = || self.places.at_or_grow(index)?.identity.get(length.into());
        let bytes = record.identity.get(length.into()).or_else(beside)?;
        let places = (0..2).filter(|&which| state & PLACES[which] != 0);
        Some(NodeRecord {
            node,
            lookups,
            file_type: file_type & libc::S_IFMT,
            dax: (type_and_length >> DAX_SHIFT) as u8,
            identity: Identity::from_parts(mount, kind.cast_signed(), &bytes)?,
            places: places
                .filter_map(|which| self.place(index, which))
                .collect(),
        })
    }

    pub(super) fn place(&self, index: u32, which: usize) -> Option<(NodeId, CString)> {
        self.places.at_or_grow(index)?.two[which].get()
    }
}

fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

fn open(index: u32, record: &Open, state: u64) -> OpenRecord {
    let (route, flags) = halves(record.route_and_flags.load());
    let known = Route::try_from(route).ok();
    OpenRecord {
        note: FileNote {
            handle: FileHandle((state >> 32) << 32 | u64::from(index)),
            node: NodeId(record.node.load()),
            flags: flags.cast_signed(),
            route: known,
            opener: OpenerIds::from_word(record.opener.load()),
        },
        flock: record.flock.load() as u8,
        left: Some(Duration::from_nanos(record.left.load())).filter(|time| !time.is_zero()),
        has_no_route: route != 0 && known.is_none(),
    }
}

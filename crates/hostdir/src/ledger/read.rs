//! Reads what an earlier process has recorded.

use super::names::NamesRead;
use super::opens::OpenRecord;
use super::records::{MAGIC, Node, PLACES};
use super::state_tables::{DAX_SHIFT, OwnerNote, StateTables};
use super::words::halves;
use crate::identity::{Identity, KnownName};
use crate::ids::NodeWord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use thrufs_abi::{FileHandle, LockOwner, NodeId};

#[derive(Serialize, Deserialize)]
pub(crate) struct NodeRecord {
    #[serde(with = "NodeWord")]
    pub(crate) node: NodeId,
    pub(crate) lookups: u64,
    pub(crate) file_type: u32,
    /// What a guest was told of mapping it. A session with a window does not migrate.
    #[serde(skip)]
    pub(crate) dax: u8,
    /// On the file system on which it was saved.
    pub(crate) identity: Option<Identity>,
    /// Where it may be.
    pub(crate) place: Option<KnownName>,
    /// If it had two names, or was being moved.
    #[serde(skip)]
    pub(crate) other_place: Option<KnownName>,
}

/// By their numbers, the names that mounts are mounted on. Each has its directory on a mount before.
pub(crate) type MountRecords = BTreeMap<u32, KnownName>;

#[derive(Default)]
pub(crate) struct Records {
    pub(crate) nodes: Vec<NodeRecord>,
    pub(crate) files: Vec<OpenRecord>,
    pub(crate) directories: Vec<OpenRecord>,
    /// By their index.
    pub(crate) owners: Vec<(u32, OwnerNote)>,
    pub(crate) mounts: MountRecords,
    pub(crate) names: NamesRead,
    /// The highest generations of nodes, files and directories.
    pub(crate) highest: [u32; 3],
}

impl StateTables {
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
        (records.files, highest[1]) = self.files.read()?;
        (records.directories, highest[2]) = self.directories.read()?;
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
            records.mounts.extend(record.get().map(|on| (number, on)));
        })?;
        records.names = self.names.read()?;
        self.audit_records.read()?;
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
        let mut places = places.filter_map(|which| self.place(index, which));
        Some(NodeRecord {
            node,
            lookups,
            file_type: file_type & libc::S_IFMT,
            dax: (type_and_length >> DAX_SHIFT) as u8,
            identity: Some(Identity::from_parts(mount, kind.cast_signed(), &bytes)?),
            place: places.next(),
            other_place: places.next(),
        })
    }

    pub(super) fn place(&self, index: u32, which: usize) -> Option<KnownName> {
        self.places.at_or_grow(index)?.two[which].get()
    }
}

//! The records of each table, and where the tables are in the memory.

use crate::chunks::Chunks;
use crate::identity::{KnownName, NAME_BYTES_MAX};
use std::marker::PhantomData;
use thrufs_abi::NodeId;
use thrufs_sys::shared_memory::records::{Bytes, Shared, SharedRecords, Stated, Word};
use thrufs_sys::shared_records;

/// A bit of each state: the record is there. Further bits, then the generation in the upper half.
pub(super) const USED: u64 = 1;
/// Of a node's state: which of the two places are there.
pub(super) const PLACES: [u64; 2] = [2, 4];
/// Of a name's state: the node may or may not have this name.
pub(super) const UNSURE: u64 = 2;
/// Of an audit record's state: it was written.
pub(super) const WRITTEN: u64 = 2;

/// The first word of the header: these eight bytes, of which the last is the version.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"THRULED\x04");

shared_records! {
    struct Header {
        magic: Word,
        /// Set once something could not be recorded.
        incomplete: Word,
        /// The highest generation of nodes whose memory was given back.
        generation: Word,
        /// The highest number of a registration for passthrough.
        backing: Word,
        /// Threads that were told to try again; 0 for none.
        retrying: [Word; RETRYING_MAX],
        /// How many chunks of each table are used.
        chunks: [Word; TABLES],
    }

    struct Node {
        lookups: Word,
        /// Of the identity; 32 bits each.
        mount_and_kind: Word,
        /// 32 bits each: above the type, what a guest was told of mapping the file; the length of the identity.
        type_and_length: Word,
        /// If it is longer, it is in [`Places`].
        identity: Bytes<4>,
    }

    struct Places {
        two: [Name; 2],
        identity: Bytes<19>,
    }

    struct Name {
        directory: Word,
        length: Word,
        name: Bytes<32>,
    }

    /// A file or a directory.
    struct Open {
        node: Word,
        /// 32 bits each.
        route_and_flags: Word,
        /// The kind of `flock(2)`.
        flock: Word,
        /// When a redacted file was last changed through this handle, in nanoseconds; or 0.
        left: Word,
        /// User and group, 32 bits each.
        opener: Word,
        /// The registration of a file under passthrough, or 0.
        backing: Word,
    }

    struct Owner {
        node: Word,
        owner: Word,
        handle: Word,
        process: Word,
    }

    struct RankedName {
        rank: Word,
        node: Word,
        name: Name,
    }

    struct Audited {
        request: Word,
        digest: Word,
    }
}

impl Name {
    /// `None` for a name that is too long.
    pub(super) fn put(&self, directory: NodeId, name: &[u8]) -> Option<()> {
        if name.len() > NAME_BYTES_MAX {
            return None;
        }
        self.directory.store(directory.0);
        self.length.store(name.len() as u64);
        self.name.put(name)
    }

    pub(super) fn get(&self) -> Option<KnownName> {
        let length = Some(self.length.load()).filter(|&it| it <= NAME_BYTES_MAX as u64)?;
        let (directory, name) = (NodeId(self.directory.load()), self.name.get(length)?);
        (!name.contains(&0)).then(|| KnownName::new(directory, &name))
    }
}

/// Records of one table, in chunks from 1024 records on.
pub(super) type RecordChunks<R> = Chunks<SharedRecords<Stated<R>>, 1024, CHUNKS_MAX>;
/// The most chunks of a table.
const CHUNKS_MAX: usize = 14;

/// A table in the memory.
pub(super) struct Shape<R> {
    pub(super) number: usize,
    pub(super) records_max: u64,
    /// The first byte.
    pub(super) start: u64,
    records: PhantomData<fn() -> R>,
}

const fn shape<R: Shared>(number: usize, chunks: usize, start: u64) -> Shape<R> {
    Shape {
        number,
        records_max: RecordChunks::<R>::values(chunks),
        start,
        records: PhantomData,
    }
}

impl<R> Shape<R> {
    pub(super) const fn end(&self) -> u64 {
        self.start + self.records_max * size_of::<Stated<R>>() as u64
    }
}

/// Most threads that are noted to try again.
pub(crate) const RETRYING_MAX: usize = 64;

/// The header has room of its own: a multiple of any page size.
const HEADER_BYTES: u64 = 64 * 1024;
const TABLES: usize = 8;

pub(super) const NODES: Shape<Node> = shape(0, 14, HEADER_BYTES);
pub(super) const PLACES_OF_NODES: Shape<Places> = shape(1, 14, NODES.end());
pub(super) const FILES: Shape<Open> = shape(2, 10, PLACES_OF_NODES.end());
pub(super) const DIRECTORIES: Shape<Open> = shape(3, 10, FILES.end());
pub(super) const OWNERS: Shape<Owner> = shape(4, 4, DIRECTORIES.end());
pub(super) const MOUNTS: Shape<Name> = shape(5, 3, OWNERS.end());
pub(super) const NAMES: Shape<RankedName> = shape(6, 14, MOUNTS.end());
pub(super) const AUDIT_RECORDS: Shape<Audited> = shape(7, 1, NAMES.end());

pub(super) const LEDGER_BYTES: u64 = AUDIT_RECORDS.end();

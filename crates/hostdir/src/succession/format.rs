//! The format of a saved session.
//!
//! It is a stream of chunks, each a length of four bytes (little-endian) and as many bytes, at most
//! [`CHUNK_BYTES_MAX`]; an empty one ends it. So its end can be found without understanding it. A chunk has whole
//! records, as [postcard](https://docs.rs/postcard) writes them. The first bytes are `THRUHOST`. Then follow
//! [`Saved`], and as many records as its header says: [`Mount`], [`Node`], [`Name`], [`File`], [`Directory`], and
//! [`Owner`], each with its [`Range`]s.
//!
//! Anybody may have written what is read here. A record borrows its bytes from the chunk, and takes no other memory.

use crate::files::Listing;
use crate::identity::HANDLE_BYTES_MAX;
use crate::ledger::{FileNote, OpenerIds, OwnerNote};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::io::{self, Read, Write};

pub(super) const MAGIC: [u8; 8] = *b"THRUHOST";

const CHUNK_BYTES_MAX: usize = 1 << 20;
/// A chunk is written at this size. The longest record has less than twice as many bytes.
const CHUNK_BYTES: usize = 64 * 1024;

pub(super) const PATH_BYTES_MAX: usize = u16::MAX as usize;

/// Most records of each kind in a state.
const COUNTS_MAX: [u32; 6] = [4096, 1 << 24, 1 << 24, OPENS_MAX, OPENS_MAX, 8192];
pub(super) const OPENS_MAX: u32 = 1 << 20;
pub(super) const NAMES_OF_NODE_MAX: usize = 4096;
const NAME_BYTES_MAX: usize = 255;
/// Most bytes of the paths of all mounts together: each may share most of its bytes with the one before.
pub(super) const MOUNT_PATH_BYTES_MAX: usize = 8 << 20;
/// Most nodes that have no file for themselves here. No client gets any number of those by requests, and a state
/// needs five bytes for one.
pub(super) const NODES_WITHOUT_FILE_MAX: u32 = 1 << 16;

/// A state, by its version.
#[derive(Serialize, Deserialize)]
pub(super) enum Saved {
    V1(Header),
}

#[derive(Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) is_under_policy: bool,
    /// The highest generations of nodes, files and directories.
    pub(super) highest: [u32; 3],
    /// How many mounts, nodes, names, files, directories and owners follow.
    pub(super) counts: [u32; 6],
}

impl Header {
    pub(super) fn check(&self) -> io::Result<()> {
        for (count, most) in self.counts.iter().zip(COUNTS_MAX) {
            if *count > most {
                return Err(invalid(format!("{count} records of a kind are too many")));
            }
        }
        Ok(())
    }
}

/// A mount beneath: its number and path.
pub(super) type Mount<'a> = (u32, Path<'a>);

#[derive(Serialize, Deserialize)]
pub(super) struct Node<'a> {
    pub(super) node: u64,
    pub(super) lookups: u64,
    pub(super) file_type: u32,
    #[serde(borrow)]
    pub(super) found: Way<'a>,
    /// A handle to compare with.
    #[serde(borrow)]
    pub(super) expected: Option<Handle<'a>>,
}

/// How a node is found.
#[derive(Serialize, Deserialize)]
pub(super) enum Way<'a> {
    Not,
    /// It has no name and is not open.
    Gone,
    #[serde(borrow)]
    Path(Path<'a>),
    /// On the mount of this number.
    Handle(u32, #[serde(borrow)] Handle<'a>),
}

/// How many bytes a path shares with the path before, and the rest of it. Names are separated by `/`, and the root is
/// none.
#[derive(Serialize, Deserialize)]
pub(super) struct Path<'a> {
    shared: u16,
    rest: &'a [u8],
}

/// A file handle: its kind and its bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Handle<'a>(
    pub(super) i32,
    #[serde(borrow, deserialize_with = "at_most::<HANDLE_BYTES_MAX, _>")] pub(super) &'a [u8],
);

/// A name by which a node is known, under a policy.
#[derive(Serialize, Deserialize)]
pub(super) struct Name<'a> {
    pub(super) node: u64,
    pub(super) directory: u64,
    #[serde(borrow, deserialize_with = "at_most::<NAME_BYTES_MAX, _>")]
    pub(super) name: &'a [u8],
}

#[derive(Serialize, Deserialize)]
pub(super) struct File {
    pub(super) note: FileNote,
    /// The kind of `flock(2)`.
    pub(super) flock: u8,
    /// At the moment: the last close(2) may have closed it.
    pub(super) is_open: bool,
}

/// Handle, node, who opened it, and what it lists.
pub(super) type Directory = (u64, u64, OpenerIds, Listing);

/// An owner of locks, and how many there are.
pub(super) type Owner = (OwnerNote, u32);

/// A lock: its kind, first and last byte.
pub(super) type Range = (u8, u64, u64);

fn at_most<'de, const BYTES: usize, D>(from: D) -> Result<&'de [u8], D::Error>
where
    D: Deserializer<'de>,
{
    let bytes = <&[u8]>::deserialize(from)?;
    match bytes.len() > BYTES {
        true => Err(D::Error::custom("a name or handle is too long")),
        false => Ok(bytes),
    }
}

pub(super) fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Paths, one after the other.
#[derive(Default)]
pub(super) struct Paths(Vec<u8>);

impl Paths {
    /// Written as the difference to the path before.
    pub(super) fn write<'a>(&mut self, path: &'a [u8]) -> Path<'a> {
        let pairs = path.iter().zip(&self.0);
        let shared = pairs.take_while(|(one, other)| one == other).count();
        let shared = shared.min(PATH_BYTES_MAX);
        self.0.truncate(shared);
        self.0.extend_from_slice(&path[shared..]);
        Path {
            shared: shared as u16,
            rest: &path[shared..],
        }
    }

    pub(super) fn read(&mut self, path: &Path<'_>) -> io::Result<&[u8]> {
        let shared = usize::from(path.shared);
        if shared > self.0.len() {
            return Err(invalid("a path in the state has no beginning"));
        }
        if shared + path.rest.len() > PATH_BYTES_MAX {
            return Err(invalid("a path in the state is too long"));
        }
        self.0.truncate(shared);
        self.0.extend_from_slice(path.rest);
        Ok(&self.0)
    }
}

pub(super) struct Writer<'a> {
    sink: &'a mut dyn Write,
    chunk: Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(sink: &'a mut dyn Write) -> Writer<'a> {
        Writer {
            sink,
            chunk: MAGIC.to_vec(),
        }
    }

    pub(super) fn write(&mut self, record: &impl Serialize) -> io::Result<()> {
        let chunk = std::mem::take(&mut self.chunk);
        self.chunk = postcard::to_extend(record, chunk).map_err(io::Error::other)?;
        match self.chunk.len() >= CHUNK_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink
            .write_all(&(self.chunk.len() as u32).to_le_bytes())?;
        self.sink.write_all(&self.chunk)?;
        self.chunk.clear();
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        if !self.chunk.is_empty() {
            self.flush()?;
        }
        self.flush()
    }
}

pub(super) struct Reader<'a> {
    source: &'a mut dyn Read,
    chunk: Vec<u8>,
    at: usize,
}

impl<'a> Reader<'a> {
    /// Fails with `InvalidData` if this is no state, or one of another version.
    pub(super) fn new(source: &'a mut dyn Read) -> io::Result<(Reader<'a>, Header)> {
        let (chunk, at) = (Vec::new(), MAGIC.len());
        let mut reader = Reader { source, chunk, at };
        reader.next_chunk()?;
        if !reader.chunk.starts_with(&MAGIC) {
            return Err(invalid("this is no state of a served directory"));
        }
        let Saved::V1(header) = reader.read()?;
        header.check()?;
        Ok((reader, header))
    }

    /// The next chunk; false at the end.
    fn next_chunk(&mut self) -> io::Result<bool> {
        let mut length = [0; 4];
        self.source.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > CHUNK_BYTES_MAX {
            return Err(invalid("a part of the state is too long"));
        }
        self.chunk.resize(length, 0);
        self.source.read_exact(&mut self.chunk)?;
        Ok(length > 0)
    }

    pub(super) fn read<'r, T: Deserialize<'r>>(&'r mut self) -> io::Result<T> {
        if self.at == self.chunk.len() {
            if !self.next_chunk()? {
                return Err(invalid("the state ends too early"));
            }
            self.at = 0;
        }
        let (record, rest) = postcard::take_from_bytes(&self.chunk[self.at..])
            .map_err(|error| invalid(format!("a record of the state is damaged: {error}")))?;
        self.at = self.chunk.len() - rest.len();
        Ok(record)
    }

    /// Ends the state, behind which nothing may follow.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if self.at < self.chunk.len() || self.next_chunk()? {
            return Err(invalid("the state has more than it should"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        is_under_policy: false,
        highest: [1, 2, 3],
        counts: [0; 6],
    };

    #[test]
    fn state_round_trips_and_ends() {
        let mut state = Vec::new();
        let (mut writer, mut written) = (Writer::new(&mut state), Paths::default());
        writer.write(&Saved::V1(HEADER)).unwrap();
        let long = [b'n'; 60_000];
        let paths: [&[u8]; 6] = [b"a/b/c", b"a/b/d", b"", b"x", &long, b"a/b/d"];
        for path in paths.repeat(4) {
            writer.write(&written.write(path)).unwrap();
        }
        writer.write(&Handle(-5, &[1, 2, 3])).unwrap();
        writer.finish().unwrap();
        state.extend(b"behind");
        let mut source = &state[..];
        let (mut reader, header) = Reader::new(&mut source).unwrap();
        assert_eq!(header.highest, [1, 2, 3]);
        let mut read = Paths::default();
        for path in paths.repeat(4) {
            assert_eq!(read.read(&reader.read().unwrap()).unwrap(), path);
        }
        assert!(reader.read::<Handle<'_>>().unwrap() == Handle(-5, &[1, 2, 3]));
        reader.finish().unwrap();
        assert_eq!(source, b"behind");
        let mut source = &state[..];
        let (reader, _) = Reader::new(&mut source).unwrap();
        assert!(reader.finish().is_err(), "there is more");
        let mut state = Vec::new();
        let mut writer = Writer::new(&mut state);
        writer.write(&Saved::V1(HEADER)).unwrap();
        writer.write(&1_u8).unwrap();
        writer.finish().unwrap();
        let mut source = &state[..];
        let (reader, _) = Reader::new(&mut source).unwrap();
        assert!(reader.finish().is_err(), "in the same chunk");
    }

    #[test]
    fn lengths_and_counts_are_checked() {
        let refused = |state: &[u8]| {
            let refused = Reader::new(&mut &*state).map(drop).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{refused}");
            refused.to_string()
        };
        assert!(refused(&[0xff; 8]).contains("too long"));
        assert!(refused(&[4, 0, 0, 0, b'T', b'H', b'R', b'U']).contains("no state"));
        let state = |saved: &dyn Fn(&mut Writer<'_>)| {
            let mut state = Vec::new();
            let mut writer = Writer::new(&mut state);
            saved(&mut writer);
            writer.finish().unwrap();
            state
        };
        // Of another version, and of none.
        assert!(refused(&state(&|writer| writer.write(&7_u8).unwrap())).contains("damaged"));
        assert!(refused(&state(&|_| ())).contains("too early"));
        for kind in 0..6 {
            let mut counts = [0_u32; 6];
            counts[kind] = COUNTS_MAX[kind] + 1;
            let header = (false, [0_u32; 3], counts);
            let state = state(&|writer| writer.write(&(0_u8, header)).unwrap());
            assert!(refused(&state).contains("are too many"), "{kind}");
        }
        // A path that shares bytes without a predecessor, one that is too long, and a longer one than its bytes.
        let mut paths = Paths(vec![b'a'; 10]);
        for (shared, rest) in [(11, 0), (10, PATH_BYTES_MAX - 9)] {
            let rest = &*vec![0; rest];
            assert!(paths.read(&Path { shared, rest }).is_err());
        }
        let cut = state(&|writer| {
            writer.write(&Saved::V1(HEADER)).unwrap();
            writer.write(&(0_u16, 40_u8, [0_u8; 32])).unwrap();
        });
        let mut source = &cut[..];
        let (mut reader, _) = Reader::new(&mut source).unwrap();
        let refused = reader.read::<Path<'_>>().map(drop).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        // A name and a handle.
        for (bytes, is_name) in [(255, true), (256, true), (128, false), (129, false)] {
            let bytes = &*vec![0_u8; bytes];
            let encoded = match is_name {
                true => postcard::to_extend(&(1_u8, 1_u8, bytes), Vec::new()).unwrap(),
                false => postcard::to_extend(&(1_u8, bytes), Vec::new()).unwrap(),
            };
            let is_read = match is_name {
                true => postcard::from_bytes::<Name<'_>>(&encoded).is_ok(),
                false => postcard::from_bytes::<Handle<'_>>(&encoded).is_ok(),
            };
            assert_eq!(
                is_read,
                bytes.len() % 2 == usize::from(is_name),
                "{}",
                bytes.len()
            );
        }
    }
}

//! The stream that carries a session to another process, perhaps on another machine.
//!
//! It is a stream of chunks, each a length of four bytes (little-endian) and as many bytes, at most
//! [`CHUNK_BYTES_MAX`]; an empty one ends it. So its end can be found without understanding it. A chunk has whole
//! records, as [postcard](https://docs.rs/postcard) writes them. The first bytes are `THRUHOST`. Then follow
//! [`Saved`], and as many records as its header says, of the types that the [record in shared memory](crate::ledger)
//! is read as: [mounts](crate::ledger::MountRecords), [nodes](crate::ledger::NodeRecord), [names](NodeName),
//! [files, directories](crate::ledger::OpenRecord), and [`Owner`]s, each with its [`Range`]s.
//!
//! Anybody may have written what is read here. A record takes no more memory than a few times its bytes in the chunk.

use crate::identity::KnownName;
use crate::ids::NodeWord;
use crate::ledger::OwnerNote;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use thrufs_abi::NodeId;

pub(super) const MAGIC: [u8; 8] = *b"THRUHOST";

const CHUNK_BYTES_MAX: usize = 1 << 20;
/// A chunk is written at this size. The longest record has less than twice as many bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// Most records of each kind in a state.
const COUNTS_MAX: [u32; 6] = [4096, 1 << 24, 1 << 24, OPENS_MAX, OPENS_MAX, 8192];
pub(super) const OPENS_MAX: u32 = 1 << 20;
pub(super) const NAMES_OF_NODE_MAX: usize = 4096;
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

/// A name by which a node is known, under a policy.
#[derive(Serialize, Deserialize)]
pub(super) struct NodeName {
    #[serde(with = "NodeWord")]
    pub(super) node: NodeId,
    pub(super) name: KnownName,
}

/// An owner of locks, and how many there are.
pub(super) type Owner = (OwnerNote, u32);

/// A lock: its kind, first and last byte.
pub(super) type Range = (u8, u64, u64);

pub(super) fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
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

    pub(super) fn read<T: DeserializeOwned>(&mut self) -> io::Result<T> {
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
    use crate::identity::Identity;

    const HEADER: Header = Header {
        is_under_policy: false,
        highest: [1, 2, 3],
        counts: [0; 6],
    };

    fn state(saved: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut state = Vec::new();
        let mut writer = Writer::new(&mut state);
        saved(&mut writer);
        writer.finish().unwrap();
        state
    }

    fn name(length: usize) -> KnownName {
        KnownName::new(NodeId(7), &vec![b'n'; length])
    }

    #[test]
    fn state_round_trips_and_ends() {
        let mut state = state(|writer| {
            writer.write(&Saved::V1(HEADER)).unwrap();
            for _ in 0..2000 {
                writer.write(&name(200)).unwrap();
            }
        });
        state.extend(b"behind");
        let mut source = &state[..];
        let (mut reader, header) = Reader::new(&mut source).unwrap();
        assert_eq!(header.highest, [1, 2, 3]);
        for _ in 0..2000 {
            assert_eq!(reader.read::<KnownName>().unwrap(), name(200));
        }
        reader.finish().unwrap();
        assert_eq!(source, b"behind");
        // There is more: in another chunk, and in the same.
        for count in [2000, 1] {
            let state = self::state(|writer| {
                writer.write(&Saved::V1(HEADER)).unwrap();
                (0..count).for_each(|_| writer.write(&name(200)).unwrap());
            });
            let mut source = &state[..];
            let (reader, _) = Reader::new(&mut source).unwrap();
            assert!(reader.finish().is_err(), "{count}");
        }
    }

    fn refused<T>(read: io::Result<T>) -> String {
        let refused = read.map(drop).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{refused}");
        refused.to_string()
    }

    #[test]
    fn lengths_and_counts_are_checked() {
        let refused = |state: &[u8]| refused(Reader::new(&mut &*state));
        assert!(refused(&[0xff; 8]).contains("too long"));
        assert!(refused(&[4, 0, 0, 0, b'T', b'H', b'R', b'U']).contains("no state"));
        // Of another version, and of none.
        assert!(refused(&state(|writer| writer.write(&7_u8).unwrap())).contains("damaged"));
        assert!(refused(&state(|_| ())).contains("too early"));
        for kind in 0..6 {
            for most in [COUNTS_MAX[kind] + 1, u32::MAX] {
                let mut counts = [0_u32; 6];
                counts[kind] = most;
                let header = (0_u8, false, [0_u32; 3], counts);
                let state = state(|writer| writer.write(&header).unwrap());
                assert!(refused(&state).contains("are too many"), "{kind}");
            }
            // A count, or a generation, that no number here holds.
            let mut counts = [0_u64; 6];
            counts[kind] = u64::MAX;
            let header = (0_u8, false, [0_u32; 3], counts);
            let state = state(|writer| writer.write(&header).unwrap());
            assert!(refused(&state).contains("damaged"), "{kind}");
        }
    }

    /// A record that `bytes` say, as what `T` reads.
    fn read<T: DeserializeOwned>(bytes: &impl Serialize) -> io::Result<T> {
        let state = state(|writer| {
            writer.write(&Saved::V1(HEADER)).unwrap();
            writer.write(bytes).unwrap();
        });
        let mut source = &state[..];
        Reader::new(&mut source).unwrap().0.read()
    }

    #[test]
    fn names_and_handles_are_as_long_as_they_may_be() {
        for length in [255, 256] {
            let read = read::<KnownName>(&name(length));
            assert_eq!(read.is_ok(), length == 255);
        }
        for (kind, length, is_taken) in [(1, 128, true), (1, 129, false), (i32::MIN, 19, false)] {
            let identity = (5_u32, kind, vec![1_u8; length]);
            assert_eq!(read::<Identity>(&identity).is_ok(), is_taken, "{length}");
        }
        // Longer than their chunk.
        for length in [100, u64::MAX >> 1, u64::MAX] {
            assert!(refused(read::<KnownName>(&(7_u8, length, 0_u8))).contains("damaged"));
            assert!(refused(read::<Identity>(&(5_u8, 2_u8, length))).contains("damaged"));
        }
    }
}

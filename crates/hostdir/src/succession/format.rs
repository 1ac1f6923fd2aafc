//! The format of a saved session. All numbers are little-endian.
//!
//! The state is a stream of chunks, each a length of four bytes and as many bytes, at most
//! [`CHUNK_BYTES_MAX`]; an empty one ends it. So its end can be found without understanding it. In the
//! chunks, one after the other:
//!
//! | what | fields |
//! |---|---|
//! | header | `THRUHOST`; version (4 bytes, 1, or 2 for a session under a policy); highest generations of nodes, files and directories (4 each); number of mounts, nodes, files, directories, owners of locks (4 each) |
//! | mount beneath | number (4), path |
//! | node | id (8), lookups (8), type (4), how it is found (1): 0 not at all, 1 by path, 2 by handle, 3 it has no name and is not open; path or mount (4) and handle; then a handle to compare with, of kind 0 and without bytes if there is none |
//! | under a policy | number of names (4) |
//! | name by which a node is known | node (8), directory (8), length (2) and as many bytes |
//! | file | handle (8), node (8), flags (4), kind of `flock(2)` (1), whether it is open at the moment (1) |
//! | directory | handle (8), node (8), file system (8), inode number (8) |
//! | under a policy, of each file and directory | group and user that opened it (4 each); of a file, how its data go (4) |
//! | owner of locks | node (8), owner (8), file handle (8), process (4), number of locks (4), each with kind (1), first and last byte (8 each) |
//!
//! A path is how many bytes it shares with the path before (2) and the rest of it (2 for its length, and
//! as many bytes); names are separated by `/`, and the root is none. A handle is a kind (4), a length (2)
//! and as many bytes.

use crate::identity::HANDLE_BYTES_MAX;
use std::io::{self, Read, Write};

pub(super) const MAGIC: [u8; 8] = *b"THRUHOST";
pub(super) const VERSION: u32 = 1;
/// With the data of a session under a policy.
pub(super) const VERSION_UNDER_POLICY: u32 = 2;

const CHUNK_BYTES_MAX: usize = 1 << 20;
/// A chunk is written at this size.
const CHUNK_BYTES: usize = 64 * 1024;

pub(super) const PATH_BYTES_MAX: usize = u16::MAX as usize;

/// Most records of each kind in a state that is read.
pub(super) const MOUNTS_MAX: u32 = 4096;
pub(super) const NODES_MAX: u32 = 1 << 24;
pub(super) const OPENS_MAX: u32 = 1 << 20;
pub(super) const OWNERS_MAX: u32 = 8192;
pub(super) const NAMES_MAX: u32 = 1 << 24;
pub(super) const NAMES_OF_NODE_MAX: usize = 4096;
pub(super) const NAME_BYTES_MAX: usize = 255;
/// Most bytes of the paths of all mounts together: each may share most of its bytes with the one before.
pub(super) const MOUNT_PATH_BYTES_MAX: usize = 8 << 20;
/// Most nodes that have no file for themselves here. No client gets any number of those by requests, and a state
/// needs 25 bytes for one.
pub(super) const NODES_WITHOUT_FILE_MAX: u32 = 1 << 16;

pub(super) fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// A file handle: its kind and its bytes.
pub(super) type Handle = (i32, Vec<u8>);

pub(super) struct Writer<'a> {
    sink: &'a mut dyn Write,
    chunk: Vec<u8>,
    last_path: Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(sink: &'a mut dyn Write) -> Writer<'a> {
        Writer {
            sink,
            chunk: Vec::with_capacity(CHUNK_BYTES + 4096),
            last_path: Vec::new(),
        }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        for chunk in self.chunk.chunks(CHUNK_BYTES_MAX) {
            self.sink.write_all(&(chunk.len() as u32).to_le_bytes())?;
            self.sink.write_all(chunk)?;
        }
        self.chunk.clear();
        Ok(())
    }

    pub(super) fn byte(&mut self, value: u8) -> io::Result<()> {
        self.bytes(&[value])
    }

    pub(super) fn u32(&mut self, value: u32) -> io::Result<()> {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> io::Result<()> {
        self.bytes(&value.to_le_bytes())
    }

    pub(super) fn short(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = u16::try_from(bytes.len()).map_err(|_| invalid("too long to be written"))?;
        self.bytes(&length.to_le_bytes())?;
        self.bytes(bytes)
    }

    /// Written as the difference to the path before.
    pub(super) fn path(&mut self, path: &[u8]) -> io::Result<()> {
        let pairs = path.iter().zip(&self.last_path);
        let shared = pairs.take_while(|(one, other)| one == other).count();
        let shared = shared.min(PATH_BYTES_MAX);
        self.bytes(&(shared as u16).to_le_bytes())?;
        self.short(&path[shared..])?;
        self.last_path.truncate(shared);
        self.last_path.extend_from_slice(&path[shared..]);
        Ok(())
    }

    pub(super) fn handle(&mut self, handle: Option<(i32, &[u8])>) -> io::Result<()> {
        let (kind, bytes) = handle.unwrap_or_default();
        self.u32(kind.cast_unsigned())?;
        self.short(bytes)
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.sink.write_all(&0u32.to_le_bytes())
    }
}

pub(super) struct Reader<'a> {
    source: &'a mut dyn Read,
    chunk: Vec<u8>,
    at: usize,
    last_path: Vec<u8>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(source: &'a mut dyn Read) -> Reader<'a> {
        Reader {
            source,
            chunk: Vec::new(),
            at: 0,
            last_path: Vec::new(),
        }
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
        self.at = 0;
        self.source.read_exact(&mut self.chunk)?;
        Ok(length > 0)
    }

    pub(super) fn bytes(&mut self, mut target: &mut [u8]) -> io::Result<()> {
        while !target.is_empty() {
            if self.at == self.chunk.len() && !self.next_chunk()? {
                return Err(invalid("the state ends too early"));
            }
            let there = &self.chunk[self.at..];
            let length = there.len().min(target.len());
            let (now, later) = target.split_at_mut(length);
            now.copy_from_slice(&there[..length]);
            self.at += length;
            target = later;
        }
        Ok(())
    }

    pub(super) fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.bytes(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn byte(&mut self) -> io::Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn short(&mut self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let length = usize::from(u16::from_le_bytes(self.array()?));
        if length > bytes_max {
            return Err(invalid("a name or handle in the state is too long"));
        }
        let mut bytes = vec![0; length];
        self.bytes(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn count(&mut self, most: u32) -> io::Result<u32> {
        let count = self.u32()?;
        if count > most {
            return Err(invalid(format!("{count} records of a kind are too many")));
        }
        Ok(count)
    }

    pub(super) fn path(&mut self) -> io::Result<Vec<u8>> {
        let shared = usize::from(u16::from_le_bytes(self.array()?));
        if shared > self.last_path.len() {
            return Err(invalid("a path in the state has no beginning"));
        }
        let rest = self.short(PATH_BYTES_MAX - shared)?;
        self.last_path.truncate(shared);
        self.last_path.extend_from_slice(&rest);
        Ok(self.last_path.clone())
    }

    pub(super) fn handle(&mut self) -> io::Result<Handle> {
        Ok((self.u32()?.cast_signed(), self.short(HANDLE_BYTES_MAX)?))
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

    #[test]
    fn state_round_trips_and_ends() {
        let mut state = Vec::new();
        let mut writer = Writer::new(&mut state);
        let paths: [&[u8]; 5] = [b"a/b/c", b"a/b/d", b"", b"x", b"a/b/d"];
        for path in paths {
            writer.path(path).unwrap();
        }
        writer.u64(7 << 40).unwrap();
        writer.bytes(&[9; 200_000]).unwrap();
        let handle = (-5, vec![1, 2, 3]);
        writer.handle(Some((-5, &[1, 2, 3]))).unwrap();
        writer.finish().unwrap();
        state.extend(b"behind");
        let mut source = &state[..];
        let mut reader = Reader::new(&mut source);
        for path in paths {
            assert_eq!(reader.path().unwrap(), path);
        }
        assert_eq!(reader.u64().unwrap(), 7 << 40);
        let mut long = vec![0; 200_000];
        reader.bytes(&mut long).unwrap();
        assert!(long.iter().all(|byte| *byte == 9));
        assert_eq!(reader.handle().unwrap(), handle);
        reader.finish().unwrap();
        assert_eq!(source, b"behind");
    }

    #[test]
    fn lengths_are_checked_before_allocation() {
        let too_long = [0xff; 8];
        let mut source = &too_long[..];
        let refused = Reader::new(&mut source).byte().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        // A path that shares bytes without a predecessor; a handle that is too long.
        for body in [&[1, 0, 0, 0][..], &[0, 0, 0, 0, 0xff, 0, 0]] {
            let mut state = (body.len() as u32).to_le_bytes().to_vec();
            state.extend(body);
            let mut source = &state[..];
            let mut reader = Reader::new(&mut source);
            let refused = match body.len() {
                4 => reader.path().map(drop),
                _ => reader.handle().map(drop),
            };
            let refused = refused.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        }
    }
}

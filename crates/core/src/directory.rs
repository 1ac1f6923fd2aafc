//! The reply to READDIR and READDIRPLUS.

use crate::attributes::Entry;
use crate::reply::entry_out;
use thrufs_abi::layout::EntryOut;
use thrufs_abi::reply::{dirent_size, direntplus_size, encode_dirent, encode_direntplus};

/// The directory listing being written, in the reply's buffer.
#[derive(Debug)]
pub struct DirectorySink<'a> {
    buffer: Buffer<'a>,
    used: usize,
    plus: bool,
}

#[derive(Debug)]
enum Buffer<'a> {
    /// Of the transport.
    Lent(&'a mut [u8]),
    /// Of a reply that comes later.
    Owned(Vec<u8>),
}

/// Entries of a directory: see [`Late::list`](crate::Late::list) and [`Late::sink`](crate::Late::sink).
#[derive(Debug)]
pub struct Listing {
    bytes: Vec<u8>,
}

impl Listing {
    pub(crate) fn new(bytes: Vec<u8>) -> Listing {
        Listing { bytes }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The kind of a directory entry: the `DT_*` values of `readdir(3)`.
pub type EntryKind = u8;

impl<'a> DirectorySink<'a> {
    pub(crate) fn new(buffer: &'a mut [u8], plus: bool) -> DirectorySink<'a> {
        DirectorySink {
            buffer: Buffer::Lent(buffer),
            used: 0,
            plus,
        }
    }

    pub(crate) fn owned(bytes: usize, plus: bool) -> DirectorySink<'static> {
        DirectorySink {
            buffer: Buffer::Owned(vec![0; bytes]),
            used: 0,
            plus,
        }
    }

    /// Room for as many entries, of the same kind, that does not borrow the reply: for a listing that may come
    /// [later](crate::Listing).
    pub fn detached(&self) -> DirectorySink<'static> {
        DirectorySink::owned(self.capacity(), self.plus)
    }

    /// The entries that were written, as the answer of [`Late`](crate::Late).
    pub fn into_listing(self) -> Listing {
        Listing::new(self.into_bytes())
    }

    /// Adds the entries of a listing that was written to a [`detached`](Self::detached) sink of this one, which is empty.
    pub fn put_listing(&mut self, listing: &Listing) {
        let bytes = listing.bytes();
        let length = bytes.len().min(self.free().len());
        self.free()[..length].copy_from_slice(&bytes[..length]);
        self.used += length;
    }

    fn capacity(&self) -> usize {
        match &self.buffer {
            Buffer::Lent(buffer) => buffer.len(),
            Buffer::Owned(buffer) => buffer.len(),
        }
    }

    /// What was written.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let mut bytes = match self.buffer {
            Buffer::Lent(bytes) => bytes.to_vec(),
            Buffer::Owned(bytes) => bytes,
        };
        bytes.truncate(self.used);
        bytes
    }

    fn free(&mut self) -> &mut [u8] {
        match &mut self.buffer {
            Buffer::Lent(buffer) => &mut buffer[self.used..],
            Buffer::Owned(buffer) => &mut buffer[self.used..],
        }
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Whether the kernel wants attributes (READDIRPLUS): by [`entry_plus`](Self::entry_plus), or single
    /// entries without by [`entry`](Self::entry).
    pub fn is_plus(&self) -> bool {
        self.plus
    }

    /// Whether nothing was written so far. An empty reply means the end of the directory.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether an entry with a name of `name_length` bytes still fits. Called before
    /// [`entry_plus`](Self::entry_plus) raises a lookup count.
    pub fn fits(&self, name_length: usize) -> bool {
        let size = if self.plus {
            direntplus_size(name_length)
        } else {
            dirent_size(name_length)
        };
        size <= self.capacity() - self.used
    }

    /// Adds an entry without attributes. A later READDIR continues at `next_offset`. Returns false, having
    /// written nothing, when it does not fit.
    #[must_use]
    pub fn entry(&mut self, ino: u64, next_offset: u64, kind: EntryKind, name: &[u8]) -> bool {
        self.put(None, ino, next_offset, kind, name)
    }

    /// Adds an entry with attributes; the kernel counts one lookup of its node. Only if
    /// [`is_plus`](Self::is_plus). Returns false, having written nothing, when it does not fit.
    #[must_use]
    pub fn entry_plus(
        &mut self,
        entry: &Entry,
        next_offset: u64,
        kind: EntryKind,
        name: &[u8],
    ) -> bool {
        self.put(Some(entry), entry.attr.ino, next_offset, kind, name)
    }

    fn put(
        &mut self,
        entry: Option<&Entry>,
        ino: u64,
        next_offset: u64,
        kind: EntryKind,
        name: &[u8],
    ) -> bool {
        let (plus, kind) = (self.plus, u32::from(kind));
        let free = self.free();
        let written = if plus {
            // Node id 0: no attributes.
            let out = entry.map_or_else(EntryOut::default, entry_out);
            encode_direntplus(free, &out, ino, next_offset, kind, name)
        } else {
            encode_dirent(free, ino, next_offset, kind, name)
        };
        self.used += written.unwrap_or(0);
        written.is_some()
    }
}

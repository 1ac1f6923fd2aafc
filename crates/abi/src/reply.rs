//! Replies: writes directory entries as a server does, and parses whole replies as a client does. Entries
//! and replies of a hostile server are input like any other: whatever is malformed ends the listing. The
//! other replies are structures of [`layout`](crate::layout).

use crate::ids::Unique;
use crate::layout::{Dirent, EntryOut, OutHeader};
use zerocopy::{FromBytes, IntoBytes};

const fn record_size(fixed: usize, name_length: usize) -> usize {
    match fixed
        .saturating_add(name_length)
        .checked_next_multiple_of(8)
    {
        Some(size) => size,
        // Fits in no buffer.
        None => usize::MAX,
    }
}

/// Size of an entry of READDIR with a name of this length (`FUSE_DIRENT_SIZE`), bytes.
#[must_use]
pub const fn dirent_size(name_length: usize) -> usize {
    record_size(size_of::<Dirent>(), name_length)
}

/// Size of an entry of READDIRPLUS (`FUSE_DIRENTPLUS_SIZE`), bytes.
#[must_use]
pub const fn direntplus_size(name_length: usize) -> usize {
    record_size(size_of::<EntryOut>() + size_of::<Dirent>(), name_length)
}

fn put<'a>(buffer: &'a mut [u8], bytes: &[u8]) -> &'a mut [u8] {
    let (place, rest) = buffer.split_at_mut(bytes.len());
    place.copy_from_slice(bytes);
    rest
}

/// Writes an entry of READDIR to the start of `buffer` and returns its size; `None` when it does not fit.
pub fn encode_dirent(
    buffer: &mut [u8],
    ino: u64,
    off: u64,
    kind: u32,
    name: &[u8],
) -> Option<usize> {
    let size = dirent_size(name.len());
    let namelen = u32::try_from(name.len()).ok()?;
    let record = buffer.get_mut(..size)?;
    let header = Dirent {
        ino,
        off,
        namelen,
        kind,
    };
    let rest = put(record, header.as_bytes());
    put(rest, name).fill(0);
    Some(size)
}

/// Writes an entry of READDIRPLUS to the start of `buffer` and returns its size; `None` when it does not
/// fit.
pub fn encode_direntplus(
    buffer: &mut [u8],
    entry: &EntryOut,
    ino: u64,
    off: u64,
    kind: u32,
    name: &[u8],
) -> Option<usize> {
    let size = direntplus_size(name.len());
    let record = buffer.get_mut(..size)?;
    let (plus, dirent) = record.split_at_mut(size_of::<EntryOut>());
    // The structure before it has a size that is a multiple of eight bytes.
    encode_dirent(dirent, ino, off, kind, name)?;
    plus.copy_from_slice(entry.as_bytes());
    Some(size)
}

/// A reply, as a client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The request's number; 0 for a notification.
    pub unique: Unique,
    /// 0, a negative error number, or the code of a notification.
    pub error: i32,
    /// What follows the header.
    pub body: &'a [u8],
}

impl<'a> Reply<'a> {
    /// Reads one whole reply.
    ///
    /// # Errors
    /// `None` for bytes that are too short, or of another length than in their header.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Reply<'a>> {
        let (header, body) = OutHeader::read_from_prefix(bytes).ok()?;
        (header.len as usize == bytes.len()).then_some(Reply {
            unique: Unique(header.unique),
            error: header.error,
            body,
        })
    }

    /// The structure that the body starts with.
    #[must_use]
    pub fn structure<T: FromBytes>(&self) -> Option<T> {
        Some(T::read_from_prefix(self.body).ok()?.0)
    }
}

/// An entry of a directory listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// The attributes in READDIRPLUS; its node id is 0 when there are none.
    pub entry: Option<EntryOut>,
    /// Inode number.
    pub ino: u64,
    /// The offset behind it.
    pub off: u64,
    /// `DT_*`.
    pub kind: u32,
    /// The name.
    pub name: &'a [u8],
}

/// The entries of a READDIR or READDIRPLUS reply. Ends at the first malformed one.
#[derive(Clone, Debug)]
pub struct DirectoryEntries<'a> {
    rest: &'a [u8],
    plus: bool,
}

impl<'a> DirectoryEntries<'a> {
    /// Over the body of a reply; `plus` for READDIRPLUS.
    #[must_use]
    pub const fn new(body: &'a [u8], plus: bool) -> DirectoryEntries<'a> {
        DirectoryEntries { rest: body, plus }
    }
}

impl<'a> Iterator for DirectoryEntries<'a> {
    type Item = DirectoryEntry<'a>;

    fn next(&mut self) -> Option<DirectoryEntry<'a>> {
        let (entry, rest) = if self.plus {
            let (entry, rest) = EntryOut::read_from_prefix(self.rest).ok()?;
            (Some(entry), rest)
        } else {
            (None, self.rest)
        };
        let (dirent, after) = Dirent::read_from_prefix(rest).ok()?;
        let name = after.get(..dirent.namelen as usize)?;
        self.rest = rest.get(dirent_size(name.len())..)?;
        Some(DirectoryEntry {
            entry,
            ino: dirent.ino,
            off: dirent.off,
            kind: dirent.kind,
            name,
        })
    }
}

//! The live mappings of a window, by offset. There is no one range of addresses that the window occupies: each
//! mapping is where the kernel has put it, and an access finds it here.

use super::wire::{Piece, REGION};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use thrufs_sys::shared_memory::{Access, SharedMapping};

const PAGE_BYTES: u64 = 4096;

/// Why a message of the back end was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its body, flags, or number of descriptors is not that of the message, or the message is unknown.
    Malformed,
    /// There is no such shared memory region.
    NoRegion,
    /// An offset or the length is no multiple of a page.
    Misaligned,
    /// It is empty or not within the window.
    OutsideWindow,
    /// It overlaps a live mapping.
    Overlap,
    /// It does not name the whole of one live mapping.
    NotMapped,
    /// The descriptor is not open for writing.
    ReadOnly,
    /// It reaches beyond the end of the file.
    BeyondEnd,
    /// There would be too many regions.
    TooMany,
    /// The kernel does not map it.
    Kernel(Errno),
}

impl Refusal {
    /// The number in the answer: not zero.
    pub(super) fn answer(self) -> u64 {
        let errno = match self {
            Refusal::Malformed | Refusal::NoRegion | Refusal::Misaligned | Refusal::NotMapped => {
                Errno::INVAL
            }
            Refusal::OutsideWindow => Errno::RANGE,
            Refusal::Overlap => Errno::EXIST,
            Refusal::ReadOnly => Errno::ACCESS,
            Refusal::BeyondEnd => Errno::NXIO,
            Refusal::TooMany => Errno::NOSPC,
            Refusal::Kernel(errno) => errno,
        };
        errno.raw_os_error() as u64
    }
}

/// A live mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowMapping {
    /// Where it begins in the window, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Where it begins in the file, in bytes.
    pub file_offset: u64,
    /// Device and inode number of the file.
    pub file: (u64, u64),
    /// Whether it is mapped for writing.
    pub writable: bool,
}

pub(super) struct Live {
    pub(super) about: WindowMapping,
    pub(super) bytes: SharedMapping,
}

impl Live {
    /// Maps a part of a file.
    pub(super) fn new(piece: &Piece, file: impl AsFd, writable: bool) -> Result<Live, Refusal> {
        let status = rustix::fs::fstat(&file).map_err(Refusal::Kernel)?;
        let access = if writable {
            Access::ReadWrite
        } else {
            Access::Read
        };
        let length = usize::try_from(piece.length).map_err(|_| Refusal::OutsideWindow)?;
        let bytes = SharedMapping::with(file.as_fd(), piece.file_offset, length, access);
        Ok(Live {
            about: WindowMapping {
                offset: piece.offset,
                length: piece.length,
                file_offset: piece.file_offset,
                file: (status.st_dev, status.st_ino),
                writable,
            },
            bytes: bytes.map_err(Refusal::Kernel)?,
        })
    }

    fn end(&self) -> u64 {
        self.about.offset + self.about.length
    }
}

pub(super) struct Table {
    size: u64,
    live: BTreeMap<u64, Live>,
}

impl Table {
    pub(super) fn new(size: u64) -> Table {
        Table {
            size,
            live: BTreeMap::new(),
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    pub(super) fn list(&self) -> Vec<WindowMapping> {
        self.live.values().map(|live| live.about).collect()
    }

    /// The mapping of the byte at `offset`, and how many bytes of it are before that.
    pub(super) fn find(&self, offset: u64) -> Option<(&Live, usize)> {
        let (&start, live) = self.live.range(..=offset).next_back()?;
        (offset < live.end()).then_some((live, (offset - start) as usize))
    }

    /// Whether a piece may be mapped where it says.
    pub(super) fn check_free(&self, piece: &Piece) -> Result<(), Refusal> {
        let end = self.check_place(piece)?;
        let before = self.live.range(..end).next_back();
        if before.is_some_and(|(_, live)| live.end() > piece.offset) {
            return Err(Refusal::Overlap);
        }
        Ok(())
    }

    /// Whether a piece is the whole of one live mapping.
    pub(super) fn check_live(&self, piece: &Piece) -> Result<(), Refusal> {
        self.check_place(piece)?;
        let live = self.live.get(&piece.offset);
        if live.is_none_or(|live| live.about.length != piece.length) {
            return Err(Refusal::NotMapped);
        }
        Ok(())
    }

    /// Whether a piece lies in the window. Returns its end.
    fn check_place(&self, piece: &Piece) -> Result<u64, Refusal> {
        if piece.region != REGION {
            return Err(Refusal::NoRegion);
        }
        let numbers = [piece.offset, piece.length, piece.file_offset];
        if numbers.iter().any(|number| number % PAGE_BYTES != 0) {
            return Err(Refusal::Misaligned);
        }
        let end = piece.offset.checked_add(piece.length);
        let end = end.filter(|&end| piece.length > 0 && end <= self.size);
        end.ok_or(Refusal::OutsideWindow)
    }

    pub(super) fn insert(&mut self, live: Live) {
        self.live.insert(live.about.offset, live);
    }

    pub(super) fn remove(&mut self, offset: u64) -> Option<Live> {
        self.live.remove(&offset)
    }

    pub(super) fn clear(&mut self) {
        self.live.clear();
    }
}

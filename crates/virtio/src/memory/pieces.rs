//! Scattered bytes of guest memory, as one sequence.

use super::{DirtyLog, Extent, Regions};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use thrufs::OutOfLineData;
use thrufs_sys::shared_memory::{Outside, SharedMapping, Span, read_at, write_at};

/// A sequence of extents, of which some bytes may be skipped at the start.
#[derive(Clone, Copy, Debug)]
pub struct Pieces<'a> {
    regions: &'a Regions,
    extents: &'a [Extent],
    skip: usize,
    length: usize,
}

impl<'a> Pieces<'a> {
    /// At most `length` bytes of `extents`, after the first `skip`.
    pub(crate) fn new(
        regions: &'a Regions,
        extents: &'a [Extent],
        skip: usize,
        length: usize,
    ) -> Pieces<'a> {
        let total: usize = extents.iter().map(|extent| extent.length).sum();
        Pieces {
            regions,
            extents,
            skip: skip.min(total),
            length: length.min(total - skip.min(total)),
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    #[must_use]
    fn after(&self, bytes: usize) -> Pieces<'a> {
        let bytes = bytes.min(self.length);
        Pieces {
            skip: self.skip + bytes,
            length: self.length - bytes,
            ..*self
        }
    }

    fn parts(&self) -> impl Iterator<Item = Extent> + use<'a> {
        let (mut skip, mut left) = (self.skip, self.length);
        let part = move |extent: &Extent| {
            let skipped = skip.min(extent.length);
            skip -= skipped;
            let length = (extent.length - skipped).min(left);
            left -= length;
            Extent {
                offset: extent.offset + skipped,
                length,
                ..*extent
            }
        };
        let parts = self.extents.iter().map(part);
        parts.filter(|extent| extent.length > 0)
    }

    pub(super) fn spans(&self) -> impl Iterator<Item = Span<'a>> + use<'a> {
        let regions = self.regions;
        // Never fails: extents lie within their table.
        self.parts()
            .map_while(move |extent| regions.span(&extent).ok())
    }

    /// Copies as many bytes as fit to `target`, and returns their number.
    pub fn copy_to(&self, target: &mut [u8]) -> usize {
        self.copy(target.len(), |mapping, offset, part| {
            mapping.copy_out(offset, &mut target[part])
        })
    }

    /// Copies as many bytes of `source` as there is room for, and returns their number.
    pub fn copy_from(&self, source: &[u8]) -> usize {
        self.copy(source.len(), |mapping, offset, part| {
            mapping.copy_in(offset, &source[part])
        })
    }

    /// Calls `copy_part` with each extent and its part of a buffer of `length` bytes.
    fn copy(
        &self,
        length: usize,
        mut copy_part: impl FnMut(&SharedMapping, usize, Range<usize>) -> Result<(), Outside>,
    ) -> usize {
        let mut copied = 0;
        for extent in self.parts() {
            let end = length.min(copied + extent.length);
            let mapping = self.regions.mapping(&extent);
            let part = mapping.and_then(|mapping| copy_part(mapping, extent.offset, copied..end));
            if part.is_err() {
                break;
            }
            copied = end;
            if copied == length {
                break;
            }
        }
        copied
    }

    /// Logs all of these bytes as written.
    pub fn mark_written(&self, log: &DirtyLog) {
        for extent in self.parts() {
            if let Ok(address) = self.regions.guest_address(&extent) {
                log.mark(address, extent.length);
            }
        }
    }

    /// Reads from `file` at `offset` to the bytes after the first `filled`, by one system call.
    pub fn read_from(
        &self,
        filled: usize,
        file: BorrowedFd<'_>,
        offset: u64,
        no_wait: bool,
    ) -> Result<usize, Errno> {
        read_at(file, self.after(filled).spans(), offset, no_wait)
    }
}

impl OutOfLineData for Pieces<'_> {
    fn len(&self) -> usize {
        self.length
    }

    fn copy_to(&self, skip: usize, target: &mut [u8]) -> usize {
        Pieces::copy_to(&self.after(skip), target)
    }

    fn write_to(&self, skip: usize, file: BorrowedFd<'_>, offset: u64) -> Result<usize, Errno> {
        write_at(file, self.after(skip).spans(), offset)
    }
}

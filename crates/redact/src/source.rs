//! Reads of a file: at offsets, within its length, and within a budget.

use super::error::{RedactError, Result};
use super::limits::{BLOCK_BYTES_MAX, METADATA_BYTES_MAX, SCAN_BYTES_MAX};
use std::io;
use std::ops::Range;

/// Bytes of one small read. Boxes and chunks are skipped, so more is rarely used.
const WINDOW_BYTES: usize = 1024;

/// A file that can be read at offsets, as by `pread(2)`.
pub trait ReadAt {
    /// Reads into `buffer` from `offset` on and returns how many bytes; 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl<F: Fn(&mut [u8], u64) -> io::Result<usize>> ReadAt for F {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self(buffer, offset)
    }
}

/// Fills `buffer`; a file that ends before has changed.
pub(super) fn read_exactly(reader: &dyn ReadAt, buffer: &mut [u8], offset: u64) -> Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match reader.read_at(&mut buffer[done..], offset.saturating_add(done as u64)) {
            Ok(0) => return Err(RedactError::Unparsable("the file is shorter than it says")),
            Ok(count) if count <= buffer.len() - done => done += count,
            Ok(_) => return Err(RedactError::Read(io::ErrorKind::InvalidData.into())),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(RedactError::Read(error)),
        }
    }
    Ok(())
}

/// A reader with the file's length and the bytes that may still be read.
pub(super) struct Source<'a> {
    reader: &'a dyn ReadAt,
    length: u64,
    metadata_left: u64,
    scan_left: u64,
    window: Vec<u8>,
    window_start: u64,
}

impl<'a> Source<'a> {
    pub(super) fn new(reader: &'a dyn ReadAt, length: u64) -> Self {
        Self {
            reader,
            length,
            metadata_left: METADATA_BYTES_MAX,
            scan_left: SCAN_BYTES_MAX,
            window: Vec::new(),
            window_start: 0,
        }
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn array<const N: usize>(&mut self, offset: u64) -> Result<[u8; N]> {
        let mut array = [0; N];
        if !self.copy_from_window(offset, &mut array) {
            self.check(offset, N as u64)?;
            let size = (self.length - offset).min(WINDOW_BYTES.max(N) as u64);
            charge(&mut self.metadata_left, size)?;
            self.window.resize(size as usize, 0);
            self.window_start = offset;
            read_exactly(self.reader, &mut self.window, offset)?;
            array.copy_from_slice(&self.window[..N]);
        }
        Ok(array)
    }

    /// The first `size` of `N` bytes at `offset`; the others are zero.
    pub(super) fn array_up_to<const N: usize>(
        &mut self,
        offset: u64,
        size: usize,
    ) -> Result<[u8; N]> {
        let mut array = [0; N];
        let size = size.min(N);
        let bytes = self.bytes(offset..offset.saturating_add(size as u64))?;
        array[..size].copy_from_slice(&bytes);
        Ok(array)
    }

    fn copy_from_window(&self, offset: u64, array: &mut [u8]) -> bool {
        let start = offset.checked_sub(self.window_start);
        let found = start.and_then(|start| {
            let start = usize::try_from(start).ok()?;
            self.window.get(start..start.checked_add(array.len())?)
        });
        found.is_some_and(|bytes| {
            array.copy_from_slice(bytes);
            true
        })
    }

    pub(super) fn u32_big(&mut self, offset: u64) -> Result<u32> {
        Ok(u32::from_be_bytes(self.array(offset)?))
    }

    pub(super) fn bytes(&mut self, range: Range<u64>) -> Result<Vec<u8>> {
        let size = range.end.saturating_sub(range.start);
        self.check(range.start, size)?;
        if size > BLOCK_BYTES_MAX {
            return Err(RedactError::Unparsable("a block of metadata is too large"));
        }
        charge(&mut self.metadata_left, size)?;
        let mut bytes = vec![0; size as usize];
        read_exactly(self.reader, &mut bytes, range.start)?;
        Ok(bytes)
    }

    /// Bytes that are only scanned.
    pub(super) fn scan(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(offset, buffer.len() as u64)?;
        charge(&mut self.scan_left, buffer.len() as u64)?;
        read_exactly(self.reader, buffer, offset)
    }

    fn check(&self, offset: u64, size: u64) -> Result<()> {
        match offset.checked_add(size) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(RedactError::Unparsable("data after the end")),
        }
    }
}

fn charge(left: &mut u64, size: u64) -> Result<()> {
    *left = left
        .checked_sub(size)
        .ok_or(RedactError::Unparsable("too much metadata"))?;
    Ok(())
}

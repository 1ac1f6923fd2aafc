//! Reads of a file: at offsets, within its length, and within a budget.

use super::error::{RedactError, Result, ensure, refuse};
use super::limits::{BLOCK_BYTES_MAX, METADATA_BYTES_MAX, SCAN_BYTES_MAX};
use std::io;
use std::ops::Range;

/// Bytes of one small read. Boxes and chunks are skipped, so more is rarely used.
const WINDOW_BYTES: usize = 1024;

pub(super) const SCAN_PIECE_BYTES: usize = 256 << 10;

/// Reads a file at offsets, as by `pread(2)`: into a buffer from an offset on, and returns how many bytes; 0 at
/// the end of the file.
pub type ReadAt<'a> = dyn Fn(&mut [u8], u64) -> io::Result<usize> + 'a;

/// Fills `buffer`; a file that ends before has changed.
pub(super) fn read_exactly(reader: &ReadAt<'_>, buffer: &mut [u8], offset: u64) -> Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match reader(&mut buffer[done..], offset.saturating_add(done as u64)) {
            Ok(0) => return refuse("the file is shorter than it says"),
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
    reader: &'a ReadAt<'a>,
    length: u64,
    metadata_left: u64,
    scan_left: u64,
    window: Vec<u8>,
    window_start: u64,
}

impl<'a> Source<'a> {
    pub(super) fn new(reader: &'a ReadAt<'a>, length: u64) -> Self {
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
        if let Some(array) = self.in_window(offset) {
            return Ok(array);
        }
        self.check(offset, N as u64)?;
        let size = (self.length - offset).min(WINDOW_BYTES.max(N) as u64);
        charge(&mut self.metadata_left, size)?;
        self.window.resize(size as usize, 0);
        self.window_start = offset;
        read_exactly(self.reader, &mut self.window, offset)?;
        let array = self.in_window(offset);
        Ok(array.expect("the window begins there, and has N bytes at least"))
    }

    fn in_window<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        let start = usize::try_from(offset.checked_sub(self.window_start)?).ok()?;
        self.window.get(start..)?.first_chunk().copied()
    }

    pub(super) fn u32_big(&mut self, offset: u64) -> Result<u32> {
        Ok(u32::from_be_bytes(self.array(offset)?))
    }

    pub(super) fn bytes(&mut self, range: Range<u64>) -> Result<Vec<u8>> {
        let size = range.end.saturating_sub(range.start);
        self.check(range.start, size)?;
        ensure(size <= BLOCK_BYTES_MAX, "a block of metadata is too large")?;
        charge(&mut self.metadata_left, size)?;
        let mut bytes = vec![0; size as usize];
        read_exactly(self.reader, &mut bytes, range.start)?;
        Ok(bytes)
    }

    /// Scans a range until `look` finds something in a piece of it: the piece's offset, and its bytes, of
    /// which `overlap` were in the piece before.
    pub(super) fn scan<T>(
        &mut self,
        range: Range<u64>,
        overlap: usize,
        mut look: impl FnMut(u64, &[u8]) -> Option<T>,
    ) -> Result<Option<T>> {
        let mut at = range.start;
        let mut buffer = vec![0; SCAN_PIECE_BYTES];
        while range.end.saturating_sub(at) > overlap as u64 {
            let size = (range.end - at).min(SCAN_PIECE_BYTES as u64);
            self.check(at, size)?;
            charge(&mut self.scan_left, size)?;
            let piece = &mut buffer[..size as usize];
            read_exactly(self.reader, piece, at)?;
            if let Some(found) = look(at, piece) {
                return Ok(Some(found));
            }
            at += size - overlap as u64;
        }
        Ok(None)
    }

    fn check(&self, offset: u64, size: u64) -> Result<()> {
        let end = offset.checked_add(size);
        ensure(
            end.is_some_and(|end| end <= self.length),
            "data after the end",
        )
    }
}

fn charge(left: &mut u64, size: u64) -> Result<()> {
    *left = left
        .checked_sub(size)
        .ok_or(RedactError::Unparsable("too much metadata"))?;
    Ok(())
}

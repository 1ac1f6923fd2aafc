//! The state of one scan of a file. The walkers are methods of it, each in its own file.

use super::error::{Result, ensure};
use super::limits::{DEPTH_MAX, PADDING_BYTES_MAX};
use super::plan::Edits;
use super::source::{ReadAt, Source};
use std::ops::Range;

pub(super) struct Search<'a> {
    pub(super) source: Source<'a>,
    pub(super) edits: Edits,
    pub(super) segments: u32,
    pub(super) chunks: u32,
    pub(super) boxes: u32,
    pub(super) trailing_files: u32,
    depth: u32,
}

impl<'a> Search<'a> {
    pub(super) fn new(reader: &'a ReadAt<'a>, length: u64) -> Self {
        Self {
            source: Source::new(reader, length),
            edits: Edits::default(),
            segments: 0,
            chunks: 0,
            boxes: 0,
            trailing_files: 0,
            depth: 0,
        }
    }

    pub(super) fn inside<T>(&mut self, look: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        ensure(self.depth < DEPTH_MAX, "files lie too deep in each other")?;
        self.depth += 1;
        let result = look(self);
        self.depth -= 1;
        result
    }

    /// Zeros a range unless it is cheap to see that it is zeros already: a file with empty padding needs no
    /// plan.
    pub(super) fn empty(&mut self, range: Range<u64>) -> Result<()> {
        let size = range.end.saturating_sub(range.start);
        let not_zero = |_, piece: &[u8]| piece.iter().find(|byte| **byte != 0).copied();
        if size <= PADDING_BYTES_MAX && self.source.scan(range.clone(), 0, not_zero)?.is_none() {
            return Ok(());
        }
        self.edits.zero(range)
    }
}

pub(super) fn count(counter: &mut u32, max: u32, what: &'static str) -> Result<()> {
    *counter += 1;
    ensure(*counter <= max, what)
}

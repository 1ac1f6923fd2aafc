//! A block of metadata that may be in several pieces of a file.

use super::error::Result;
use super::plan::Edits;
use super::source::Source;
use std::ops::Range;

#[derive(Clone, Debug)]
pub(super) struct Extents(pub(super) Vec<Range<u64>>);

impl Extents {
    pub(super) fn one(range: Range<u64>) -> Self {
        Self(vec![range])
    }

    /// The range in the file, if it is a single one.
    pub(super) fn contiguous(&self) -> Option<Range<u64>> {
        match self.0.as_slice() {
            [range] => Some(range.clone()),
            _ => None,
        }
    }

    pub(super) fn read(&self, source: &mut Source<'_>) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for range in &self.0 {
            bytes.extend_from_slice(&source.bytes(range.clone())?);
        }
        Ok(bytes)
    }

    pub(super) fn zero_all(&self, edits: &mut Edits) -> Result<()> {
        self.0
            .iter()
            .try_for_each(|range| edits.zero(range.clone()))
    }

    pub(super) fn zero(&self, edits: &mut Edits, range: Range<usize>) -> Result<()> {
        self.pieces(range, |at, _| edits.zero(at))
    }

    pub(super) fn replace(&self, edits: &mut Edits, start: usize, bytes: &[u8]) -> Result<()> {
        self.pieces(start..start + bytes.len(), |at, within| {
            edits.bytes(at.start, &bytes[within])
        })
    }

    /// Runs `each` with every piece of a range of the block: its range in the file, and in the range.
    fn pieces(
        &self,
        range: Range<usize>,
        mut each: impl FnMut(Range<u64>, Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let mut before = 0_u64;
        let (start, end) = (range.start as u64, range.end as u64);
        for extent in &self.0 {
            let size = extent.end - extent.start;
            let from = start.max(before);
            let to = end.min(before + size);
            if from < to {
                let at = extent.start + (from - before)..extent.start + (to - before);
                each(at, (from - start) as usize..(to - start) as usize)?;
            }
            before += size;
        }
        Ok(())
    }
}

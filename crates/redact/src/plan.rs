//! Patches: the bytes of a file that readers see differently.

use super::error::{Result, ensure};
use super::limits::{RANGES_MAX, REPLACEMENT_BYTES_MAX};
use std::ops::Range;

/// What readers see in a patched range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// This byte: a zero, or a space where text has to stay text.
    Fill(u8),
    /// These bytes, as many as the range has.
    Bytes(Box<[u8]>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Patch {
    start: u64,
    end: u64,
    content: Content,
}

impl Patch {
    /// Patches `buffer`, which begins at `offset` of the file.
    fn lay(&self, offset: u64, buffer: &mut [u8]) {
        let end = offset.saturating_add(buffer.len() as u64).min(self.end);
        let start = offset.max(self.start);
        if start >= end {
            return;
        }
        let target = &mut buffer[(start - offset) as usize..(end - offset) as usize];
        match &self.content {
            Content::Fill(byte) => target.fill(*byte),
            Content::Bytes(bytes) => {
                let from = (start - self.start) as usize;
                target.copy_from_slice(&bytes[from..from + target.len()]);
            }
        }
    }
}

/// The bytes of a file that readers see differently: sorted ranges that do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedactionPlan {
    patches: Vec<Patch>,
}

impl RedactionPlan {
    /// Whether readers see the file unchanged.
    pub fn is_empty(&self) -> bool {
        self.patches.is_empty()
    }

    /// The ranges in order, with what readers see there.
    pub fn ranges(&self) -> impl Iterator<Item = (Range<u64>, &Content)> {
        self.patches.iter().map(|p| (p.start..p.end, &p.content))
    }

    /// Patches `buffer`, which holds the file's bytes from `offset` on. A binary search, and the time of
    /// the patches that overlap.
    pub fn apply(&self, offset: u64, buffer: &mut [u8]) {
        let end = offset.saturating_add(buffer.len() as u64);
        let first = self.patches.partition_point(|patch| patch.end <= offset);
        for patch in &self.patches[first..] {
            if patch.start >= end {
                break;
            }
            patch.lay(offset, buffer);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Edits {
    patches: Vec<Patch>,
    replacement_bytes: usize,
}

impl Edits {
    pub(super) fn zero(&mut self, range: Range<u64>) -> Result<()> {
        self.push(range, Content::Fill(0))
    }

    pub(super) fn spaces(&mut self, range: Range<u64>) -> Result<()> {
        self.push(range, Content::Fill(b' '))
    }

    pub(super) fn bytes(&mut self, start: u64, bytes: &[u8]) -> Result<()> {
        self.replacement_bytes += bytes.len();
        ensure(
            self.replacement_bytes <= REPLACEMENT_BYTES_MAX,
            "too much to replace",
        )?;
        let end = start.saturating_add(bytes.len() as u64);
        self.push(start..end, Content::Bytes(bytes.into()))
    }

    fn push(&mut self, range: Range<u64>, content: Content) -> Result<()> {
        if range.start >= range.end {
            return Ok(());
        }
        ensure(self.patches.len() < RANGES_MAX, "too many ranges")?;
        self.patches.push(Patch {
            start: range.start,
            end: range.end,
            content,
        });
        Ok(())
    }

    /// The number of patches, for [`undo_to`](Self::undo_to).
    pub(super) fn mark(&self) -> usize {
        self.patches.len()
    }

    /// Drops the patches since `mark`.
    pub(super) fn undo_to(&mut self, mark: usize) {
        self.patches.truncate(mark);
    }

    /// Applies the patches since `mark` to `buffer`, which begins at `offset`, in their order.
    pub(super) fn apply_since(&self, mark: usize, offset: u64, buffer: &mut [u8]) {
        for patch in &self.patches[mark..] {
            patch.lay(offset, buffer);
        }
    }

    /// Sorts and joins the patches; refuses contradictions.
    pub(super) fn finish(mut self, length: u64) -> Result<RedactionPlan> {
        self.patches.sort_by_key(|patch| (patch.start, patch.end));
        let mut patches: Vec<Patch> = Vec::with_capacity(self.patches.len());
        for patch in self.patches {
            ensure(patch.end <= length, "data after the end")?;
            match patches.last_mut() {
                Some(last) if patch.start <= last.end && same_fill(last, &patch) => {
                    last.end = last.end.max(patch.end);
                }
                Some(last) if patch.start < last.end => {
                    ensure(*last == patch, "two structures share their bytes")?;
                }
                _ => patches.push(patch),
            }
        }
        Ok(RedactionPlan { patches })
    }
}

fn same_fill(a: &Patch, b: &Patch) -> bool {
    a.content == b.content && !matches!(a.content, Content::Bytes(_))
}

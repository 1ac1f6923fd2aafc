//! EXIF blocks in any container.

use super::detect::{self, Container};
use super::error::Result;
use super::extents::Extents;
use super::search::Search;
use super::{tiff, words, xmp};
use std::ops::Range;

/// Written before the TIFF header by some programs, in containers that do not require it.
const PREFIX: &[u8] = b"Exif\0\0";

impl Search<'_> {
    /// Scans an EXIF block, which begins with the TIFF header or with `Exif\0\0`.
    pub(super) fn exif(&mut self, extents: &Extents) -> Result<()> {
        let all = extents.read(&mut self.source)?;
        let skip = if all.starts_with(PREFIX) {
            PREFIX.len()
        } else {
            0
        };
        self.tiff(extents, skip, &all[skip..])
    }

    /// Scans `block`, which is in `extents` behind `skip` bytes.
    pub(super) fn tiff(&mut self, extents: &Extents, skip: usize, block: &[u8]) -> Result<()> {
        let there = |range: &Range<usize>| range.start + skip..range.end + skip;
        let findings = tiff::walk(block)?;
        for zeros in &findings.zeros {
            extents.zero(&mut self.edits, there(zeros))?;
        }
        for (start, table) in &findings.tables {
            extents.replace(&mut self.edits, start + skip, table)?;
        }
        for packet in &findings.packets {
            if xmp::names_place(&block[packet.clone()]) {
                let empty = xmp::empty_packet(packet.len());
                extents.replace(&mut self.edits, packet.start + skip, &empty)?;
            }
        }
        for note in &findings.notes {
            if words::note_names_place(&block[note.clone()]) {
                extents.zero(&mut self.edits, there(note))?;
            }
        }
        for thumbnail in &findings.thumbnails {
            if words::holds_metadata(&block[thumbnail.clone()]) {
                self.thumbnail(extents, there(thumbnail), &block[thumbnail.clone()])?;
            }
        }
        Ok(())
    }

    fn thumbnail(&mut self, extents: &Extents, at: Range<usize>, bytes: &[u8]) -> Result<()> {
        match (extents.contiguous(), detect::of_head(bytes)) {
            (Some(block), Some(Container::Jpeg)) => {
                let range = block.start + at.start as u64..block.start + at.end as u64;
                self.inside(|search| search.jpeg_file(range))
            }
            // Not understood, and nothing else depends on it.
            _ => extents.zero(&mut self.edits, at),
        }
    }
}

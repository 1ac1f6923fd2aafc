//! An EXIF block wherever it was found.

use super::detect::{self, Container};
use super::extents::Extents;
use super::search::Search;
use super::{Result, tiff, words, xmp};
use std::ops::Range;

/// What some writers put before the TIFF header, in containers that do not ask for it.
const PREFIX: &[u8] = b"Exif\0\0";

impl Search<'_> {
    /// Looks through an EXIF block, which begins with the TIFF header or with `Exif\0\0`.
    pub(super) fn exif(&mut self, extents: &Extents) -> Result<()> {
        let all = extents.read(&mut self.source)?;
        let skip = if all.starts_with(PREFIX) {
            PREFIX.len()
        } else {
            0
        };
        self.tiff(extents, skip, &all[skip..])
    }

    /// Looks through `block`, which lies in `extents` behind `skip` bytes.
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

    /// A thumbnail with metadata of its own.
    fn thumbnail(&mut self, extents: &Extents, at: Range<usize>, bytes: &[u8]) -> Result<()> {
        match (extents.contiguous(), detect::of_head(bytes)) {
            (Some(block), Some(Container::Jpeg)) => {
                let range = block.start + at.start as u64..block.start + at.end as u64;
                self.inside(|search| search.jpeg_file(range))
            }
            // It is of no use to readers without knowing more; nothing else hangs on it.
            _ => extents.zero(&mut self.edits, at),
        }
    }
}

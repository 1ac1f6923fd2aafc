//! EXIF blocks in any container.

use super::detect::{self, Container};
use super::error::{RedactError, Result, ensure};
use super::extents::Extents;
use super::search::Search;
use super::{tiff, words, xmp};
use std::ops::Range;

/// Written before the TIFF header by some programs, in containers that do not require it.
pub(super) const PREFIX: &[u8] = b"Exif\0\0";

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
        for text in &findings.texts {
            let bytes = &block[text.clone()];
            let characters: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
            if words::text_names_place(&characters) || words::note_names_place(bytes) {
                extents.zero(&mut self.edits, there(text))?;
            }
        }
        for range in &findings.unknown {
            let names_place = words::note_names_place(&block[range.clone()]);
            ensure(!names_place, "a place in a value of unknown type")?;
        }
        for thumbnail in &findings.thumbnails {
            self.thumbnail(extents, there(thumbnail), &block[thumbnail.clone()])?;
        }
        Ok(())
    }

    /// A thumbnail that is not understood is emptied if it may have metadata: nothing else depends on it.
    fn thumbnail(&mut self, extents: &Extents, at: Range<usize>, bytes: &[u8]) -> Result<()> {
        let mark = self.edits.mark();
        if let (Some(block), Some(Container::Jpeg)) = (extents.contiguous(), detect::of_head(bytes))
        {
            let range = block.start + at.start as u64..block.start + at.end as u64;
            let end = self.inside(|search| search.jpeg(range.clone()));
            match end {
                // What follows may be of the block, if the length is wrong.
                Ok(end) if !words::holds_metadata(&bytes[(end - range.start) as usize..]) => {
                    return Ok(());
                }
                Ok(_) | Err(RedactError::Unparsable(_)) => self.edits.undo_to(mark),
                Err(error) => return Err(error),
            }
            return extents.zero(&mut self.edits, at);
        }
        match words::holds_metadata(bytes) {
            true => extents.zero(&mut self.edits, at),
            false => Ok(()),
        }
    }
}

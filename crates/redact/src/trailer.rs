//! The bytes behind the end of a JPEG: second images (MPF, gain maps), the film of a motion photo, records
//! of the maker.
//!
//! Decoders of the image do not read them. Images that are understood are scanned like any other;
//! everything else is zeroed, and after the beginning of a film all that follows: a frame in it may look
//! like an image.

use super::error::{RedactError, Result};
use super::limits::TRAILING_FILES_MAX;
use super::search::Search;
use std::ops::Range;

/// Bytes by which the beginning of an image or film is recognised.
const HEAD_BYTES: usize = 8;

impl Search<'_> {
    pub(super) fn trailer(&mut self, range: Range<u64>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            self.trailing_files += 1;
            let found = match self.trailing_files > TRAILING_FILES_MAX {
                true => None,
                false => self.next_head(at..range.end)?,
            };
            let Some((start, false)) = found else {
                return self.empty(at..range.end);
            };
            self.empty(at..start)?;
            at = match self.trailing_image(start..range.end) {
                Ok(end) => end,
                Err(RedactError::Unparsable(_)) => {
                    // It only looked like an image.
                    self.edits.zero(start..start + HEAD_BYTES as u64)?;
                    start + HEAD_BYTES as u64
                }
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// An image at the beginning of `range`; returns its end.
    fn trailing_image(&mut self, range: Range<u64>) -> Result<u64> {
        let mark = self.edits.mark();
        let end = self.inside(|search| search.jpeg(range));
        if end.is_err() {
            self.edits.undo_to(mark);
        }
        end
    }

    /// Where the next JPEG or film begins, and whether it is a film.
    pub(super) fn next_head(&mut self, range: Range<u64>) -> Result<Option<(u64, bool)>> {
        self.source.scan(range, HEAD_BYTES - 1, |at, piece| {
            let mut heads = piece.windows(HEAD_BYTES);
            let found = heads.position(|head| begins_film(head) || begins_image(head))?;
            Some((at + found as u64, begins_film(&piece[found..])))
        })
    }
}

fn begins_film(head: &[u8]) -> bool {
    &head[4..8] == b"ftyp"
}

fn begins_image(head: &[u8]) -> bool {
    head[0] == 0xff && head[1] == 0xd8 && head[2] == 0xff && head[3] >= 0xc0
}

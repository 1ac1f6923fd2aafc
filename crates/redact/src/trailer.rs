//! The bytes behind the end of a JPEG: second images (MPF, gain maps), the film of a motion photo, records
//! of the maker.
//!
//! Decoders of the image do not read them. Images that are understood are scanned like any other;
//! everything else is zeroed, and after the beginning of a film all that follows: a frame in it may look
//! like an image.

use super::error::{RedactError, Result};
use super::limits::TRAILING_FILES_MAX;
use super::search::{SCAN_PIECE_BYTES, Search};
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
                false => self.next_image(at..range.end)?,
            };
            let Some(start) = found else {
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

    /// Where the next JPEG begins, unless a film comes first.
    fn next_image(&mut self, range: Range<u64>) -> Result<Option<u64>> {
        let next = self.next_head(range)?;
        Ok(next.and_then(|(at, is_film)| (!is_film).then_some(at)))
    }

    /// Where the next JPEG or film begins, and whether it is a film.
    pub(super) fn next_head(&mut self, range: Range<u64>) -> Result<Option<(u64, bool)>> {
        let mut at = range.start;
        let mut piece = vec![0; SCAN_PIECE_BYTES];
        while range.end - at >= HEAD_BYTES as u64 {
            let size = (range.end - at).min(piece.len() as u64) as usize;
            self.source.scan(at, &mut piece[..size])?;
            let mut heads = piece[..size].windows(HEAD_BYTES);
            if let Some(found) = heads.position(|head| begins_film(head) || begins_image(head)) {
                let is_film = begins_film(&piece[found..]);
                return Ok(Some((at + found as u64, is_film)));
            }
            at += (size - HEAD_BYTES + 1) as u64;
        }
        Ok(None)
    }
}

fn begins_film(head: &[u8]) -> bool {
    &head[4..8] == b"ftyp"
}

fn begins_image(head: &[u8]) -> bool {
    head[0] == 0xff && head[1] == 0xd8 && head[2] == 0xff && head[3] >= 0xc0
}

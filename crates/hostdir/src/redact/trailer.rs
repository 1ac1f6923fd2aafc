//! What lies behind the end of a JPEG: second images (MPF, gain maps), the film of a motion
//! photo, records of the maker.
//!
//! Decoders of the image do not look there. Images and films that are understood stay and are
//! looked through like any other; what is not understood is emptied.

use super::Result;
use super::limits::TRAILING_FILES_MAX;
use super::search::{SCAN_PIECE_BYTES, Search};
use super::{RedactError, detect};
use std::ops::Range;

/// Bytes by which the beginning of a file is recognised.
const HEAD_BYTES: usize = 12;

impl Search<'_> {
    /// Looks through the bytes behind an image.
    pub(super) fn trailer(&mut self, range: Range<u64>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            self.trailing_files += 1;
            let found = match self.trailing_files > TRAILING_FILES_MAX {
                true => None,
                false => self.next_file(at..range.end)?,
            };
            let Some(start) = found else {
                return self.empty(at..range.end);
            };
            self.empty(at..start)?;
            at = match self.trailing_file(start..range.end) {
                Ok(end) => end,
                Err(RedactError::Unparsable(_)) => {
                    // Only its looks were those of a file.
                    self.edits.zero(start..start + HEAD_BYTES as u64)?;
                    start + HEAD_BYTES as u64
                }
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// A file at the beginning of `range`; says where it ends.
    fn trailing_file(&mut self, range: Range<u64>) -> Result<u64> {
        let mark = self.edits.mark();
        let head: [u8; HEAD_BYTES] = self.source.array(range.start)?;
        let end = self.inside(|search| match detect::of_head(&head) {
            Some(detect::Container::Jpeg) => search.jpeg(range),
            _ => search.movie_in(range),
        });
        if end.is_err() {
            self.edits.undo_to(mark);
        }
        end
    }

    /// Where the next JPEG or film begins.
    fn next_file(&mut self, range: Range<u64>) -> Result<Option<u64>> {
        let mut at = range.start;
        let mut piece = vec![0; SCAN_PIECE_BYTES];
        while range.end - at >= HEAD_BYTES as u64 {
            let size = (range.end - at).min(piece.len() as u64) as usize;
            self.source.scan(at, &mut piece[..size])?;
            let heads = piece[..size].windows(HEAD_BYTES);
            if let Some(found) = heads.into_iter().position(begins_file) {
                return Ok(Some(at + found as u64));
            }
            at += (size - HEAD_BYTES + 1) as u64;
        }
        Ok(None)
    }
}

fn begins_file(head: &[u8]) -> bool {
    let jpeg = head[0] == 0xff && head[1] == 0xd8 && head[2] == 0xff && head[3] >= 0xc0;
    jpeg || &head[4..8] == b"ftyp"
}

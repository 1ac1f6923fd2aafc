//! WebP: chunks of a RIFF file.

use super::error::{Result, ensure};
use super::extents::Extents;
use super::limits::CHUNKS_MAX;
use super::search::{Search, count};
use super::words;
use std::ops::Range;

const HEADER_BYTES: u64 = 12;
const CHUNK_HEADER_BYTES: u64 = 8;
/// Bytes of an animation frame before its own chunks.
const FRAME_HEADER_BYTES: u64 = 16;
/// Bytes of the chunks that say what the file has, and how it is animated.
const FEATURES_BYTES: u64 = 10;
const ANIMATION_BYTES: u64 = 6;

impl Search<'_> {
    pub(super) fn webp(&mut self, range: Range<u64>) -> Result<()> {
        let size = u64::from(u32::from_le_bytes(self.source.array(range.start + 4)?));
        let end = range.start + 8 + size;
        ensure(end <= range.end && size >= 4, "a WebP file that is cut off")?;
        self.riff_chunks(range.start + HEADER_BYTES..end)?;
        self.empty(end..range.end)
    }

    fn riff_chunks(&mut self, range: Range<u64>) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            count(&mut self.chunks, CHUNKS_MAX, "too many chunks")?;
            if range.end - at < CHUNK_HEADER_BYTES {
                // A byte of padding that some writers count, or garbage.
                return self.empty(at..range.end);
            }
            let kind: [u8; 4] = self.source.array(at)?;
            let size = u64::from(u32::from_le_bytes(self.source.array(at + 4)?));
            let data = at + CHUNK_HEADER_BYTES..at + CHUNK_HEADER_BYTES + size;
            ensure(data.end <= range.end, "a WebP chunk without its data")?;
            at = (data.end + (size & 1)).min(range.end);
            self.webp_chunk(kind, data)?;
        }
        Ok(())
    }

    fn webp_chunk(&mut self, kind: [u8; 4], data: Range<u64>) -> Result<()> {
        let behind = |bytes: u64| (data.start + bytes).min(data.end)..data.end;
        match &kind {
            b"VP8 " | b"VP8L" | b"ALPH" => return Ok(()),
            b"VP8X" => return self.empty(behind(FEATURES_BYTES)),
            b"ANIM" => return self.empty(behind(ANIMATION_BYTES)),
            b"ICCP" => {
                let profile = self.source.bytes(data.clone())?;
                return match words::opaque_names_place(&profile) {
                    true => self.empty(data),
                    false => Ok(()),
                };
            }
            _ => {}
        }
        let extents = Extents::one(data.clone());
        match &kind.map(|byte| byte.to_ascii_uppercase()) {
            b"ANMF" => {
                let start = data.start + FRAME_HEADER_BYTES;
                ensure(start <= data.end, "a WebP frame without its data")?;
                self.inside(|search| search.riff_chunks(start..data.end))
            }
            // Some writers leave an empty one behind.
            b"EXIF" if data.start == data.end => Ok(()),
            b"EXIF" => self.exif(&extents),
            b"XMP " => self.xmp(&extents),
            // Of unknown kind.
            _ => self.empty(data),
        }
    }
}

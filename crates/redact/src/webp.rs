//! WebP: chunks of a RIFF file.

use super::error::{Result, ensure};
use super::extents::Extents;
use super::limits::CHUNKS_MAX;
use super::search::{Search, count};
use std::ops::Range;

const HEADER_BYTES: u64 = 12;
const CHUNK_HEADER_BYTES: u64 = 8;
/// Bytes of an animation frame before its own chunks.
const FRAME_HEADER_BYTES: u64 = 16;
/// Chunks that say how to decode. Those of unknown kind are emptied.
const HARMLESS: [&[u8; 4]; 6] = [b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ICCP"];

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
        if HARMLESS.iter().any(|harmless| **harmless == kind) {
            return Ok(());
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
            _ => self.empty(data),
        }
    }
}

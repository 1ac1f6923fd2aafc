//! PNG: chunks. A chunk's checksum is part of what readers see, so it is recomputed.

use super::error::{RedactError, Result};
use super::extents::Extents;
use super::limits::{BLOCK_BYTES_MAX, CHUNKS_MAX};
use super::search::{Search, count};
use super::{words, xmp};
use std::ops::Range;

const SIGNATURE_BYTES: u64 = 8;
/// Length, type and checksum of a chunk.
const FRAME_BYTES: u64 = 12;
/// The type of emptied chunks: ancillary, private, safe to copy.
const EMPTIED: &[u8; 4] = b"reDa";
/// Chunks that say how to decode.
const HARMLESS: [&[u8; 4]; 19] = [
    b"IHDR", b"PLTE", b"IDAT", b"tRNS", b"cHRM", b"gAMA", b"iCCP", b"sBIT", b"sRGB", b"bKGD",
    b"hIST", b"pHYs", b"sPLT", b"tIME", b"acTL", b"fcTL", b"fdAT", b"cICP", b"mDCV",
];

struct Chunk {
    kind: [u8; 4],
    data: Range<u64>,
}

impl Search<'_> {
    pub(super) fn png(&mut self, range: Range<u64>) -> Result<()> {
        let mut at = range.start + SIGNATURE_BYTES;
        loop {
            count(&mut self.chunks, CHUNKS_MAX, "too many chunks")?;
            if range.end - at < FRAME_BYTES {
                return Err(RedactError::Unparsable("a PNG that is cut off"));
            }
            let length = u64::from(self.source.u32_big(at)?);
            let kind = self.source.array(at + 4)?;
            let data = at + 8..at + 8 + length;
            if data.end + 4 > range.end {
                return Err(RedactError::Unparsable("a PNG chunk without its data"));
            }
            at = data.end + 4;
            if &kind == b"IEND" {
                // Decoders do not read behind the end.
                return self.empty(at..range.end);
            }
            self.png_chunk(&Chunk { kind, data })?;
        }
    }

    fn png_chunk(&mut self, chunk: &Chunk) -> Result<()> {
        let critical = chunk.kind[0].is_ascii_uppercase();
        if critical || HARMLESS.iter().any(|kind| **kind == chunk.kind) {
            return Ok(());
        }
        let mark = self.edits.mark();
        let bytes = self.source.bytes(chunk.data.clone())?;
        let extents = Extents::one(chunk.data.clone());
        match &chunk.kind {
            b"eXIf" => self.exif(&extents)?,
            b"tEXt" => match text_names_place(&bytes) {
                true => return self.empty_chunk(chunk),
                false => return Ok(()),
            },
            b"iTXt" => match international(&bytes) {
                Some((keyword, text)) if keyword == b"XML:com.adobe.xmp" => {
                    if xmp::names_place(&bytes[text..]) {
                        let from = chunk.data.start + text as u64;
                        let packet = Extents::one(from..chunk.data.end);
                        self.empty_xmp(&packet, bytes.len() - text)?;
                    }
                }
                Some(_) if !text_names_place(&bytes) => return Ok(()),
                _ => return self.empty_chunk(chunk),
            },
            // Compressed text cannot be changed in place, and is not scanned.
            b"zTXt" => return self.empty_chunk(chunk),
            _ if is_exif_by_another_name(&chunk.kind) => return self.empty_chunk(chunk),
            _ if words::opaque_names_place(&bytes) => return self.empty_chunk(chunk),
            _ => return Ok(()),
        }
        self.renew_checksum(chunk, mark, bytes)
    }

    /// Patches the checksum if there are patches since `mark`.
    fn renew_checksum(&mut self, chunk: &Chunk, mark: usize, mut bytes: Vec<u8>) -> Result<()> {
        if self.edits.mark() == mark {
            return Ok(());
        }
        self.edits.apply_since(mark, chunk.data.start, &mut bytes);
        let checksum = Checksum::new().with(&chunk.kind).with(&bytes).value();
        self.edits.bytes(chunk.data.end, &checksum.to_be_bytes())
    }

    /// Turns a chunk into zeros of an unknown type.
    fn empty_chunk(&mut self, chunk: &Chunk) -> Result<()> {
        let size = chunk.data.end - chunk.data.start;
        if size > BLOCK_BYTES_MAX {
            return Err(RedactError::Unparsable("a block of metadata is too large"));
        }
        let zeros = vec![0; size as usize];
        let checksum = Checksum::new().with(EMPTIED).with(&zeros).value();
        self.edits.bytes(chunk.data.start - 4, EMPTIED)?;
        self.edits.zero(chunk.data.clone())?;
        self.edits.bytes(chunk.data.end, &checksum.to_be_bytes())
    }
}

fn is_exif_by_another_name(kind: &[u8; 4]) -> bool {
    kind.eq_ignore_ascii_case(b"exif") || kind == b"zxIf"
}

/// A keyword, a zero, and text; or a whole profile in hexadecimal.
fn text_names_place(bytes: &[u8]) -> bool {
    let text: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != 0).collect();
    text.to_ascii_lowercase().starts_with(b"raw profile type") || words::text_names_place(&text)
}

/// The keyword of international text and the offset of the text; `None` if it is compressed.
fn international(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let keyword_end = memchr::memchr(0, bytes)?;
    if bytes.get(keyword_end + 1) != Some(&0) {
        return None;
    }
    let language = keyword_end + 3;
    let translated = language + memchr::memchr(0, bytes.get(language..)?)? + 1;
    let text = translated + memchr::memchr(0, bytes.get(translated..)?)? + 1;
    Some((&bytes[..keyword_end], text))
}

/// The checksum of PNG chunks (PNG specification, annex D).
struct Checksum(u32);

impl Checksum {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = index as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 {
                    0xedb8_8320 ^ (value >> 1)
                } else {
                    value >> 1
                };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };

    fn new() -> Self {
        Self(u32::MAX)
    }

    fn with(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |sum, byte| {
            Self::TABLE[((sum ^ u32::from(*byte)) & 0xff) as usize] ^ (sum >> 8)
        }))
    }

    fn value(self) -> u32 {
        !self.0
    }
}

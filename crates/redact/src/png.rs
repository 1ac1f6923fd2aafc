//! PNG: chunks. A chunk's checksum is part of what readers see, so it is recomputed.

use super::error::{Result, ensure};
use super::extents::Extents;
use super::limits::CHUNKS_MAX;
use super::search::{Search, count};
use super::{words, xmp};
use std::ops::Range;

const SIGNATURE_BYTES: u64 = 8;
/// Length, type and checksum of a chunk.
const FRAME_BYTES: u64 = 12;
/// The type of emptied chunks: ancillary, private, safe to copy.
const EMPTIED: &[u8; 4] = b"reDa";
/// Chunks that say how to decode, with Apple's `CgBI`, and hold coded pictures. Critical ones of another kind are refused,
/// since nobody shows the picture without them.
const PICTURE: [&[u8; 4]; 5] = [b"IHDR", b"PLTE", b"IDAT", b"fdAT", b"CgBI"];
/// Chunks that say how to show it. They stay unless they name a place; all of another kind are emptied, as `gIFx`, `caBX`
/// (C2PA), palettes with a name (`sPLT`) and those of programs.
const HARMLESS: [&[u8; 4]; 17] = [
    b"tRNS", b"cHRM", b"gAMA", b"iCCP", b"sBIT", b"sRGB", b"bKGD", b"hIST", b"pHYs", b"tIME",
    b"acTL", b"fcTL", b"cICP", b"mDCV", b"cLLI", b"oFFs", b"sTER",
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
            ensure(range.end - at >= FRAME_BYTES, "a PNG that is cut off")?;
            let length = u64::from(self.source.u32_big(at)?);
            let kind = self.source.array(at + 4)?;
            let data = at + 8..at + 8 + length;
            ensure(data.end + 4 <= range.end, "a PNG chunk without its data")?;
            at = data.end + 4;
            if &kind == b"IEND" {
                // Decoders do not read behind the end.
                return self.empty(at..range.end);
            }
            self.png_chunk(&Chunk { kind, data })?;
        }
    }

    fn png_chunk(&mut self, chunk: &Chunk) -> Result<()> {
        if PICTURE.contains(&&chunk.kind) {
            return Ok(());
        }
        ensure(
            !chunk.kind[0].is_ascii_uppercase(),
            "a PNG chunk of unknown kind",
        )?;
        let mark = self.edits.mark();
        let mut bytes = self.source.bytes(chunk.data.clone())?;
        let names_place = match &chunk.kind {
            b"eXIf" => {
                self.exif(&Extents::one(chunk.data.clone()))?;
                false
            }
            b"tEXt" => text_names_place(&bytes),
            b"iCCP" => {
                // Behind the name, it is compressed.
                let name = bytes.split(|byte| *byte == 0).next();
                name.is_none_or(text_names_place)
            }
            kind if HARMLESS.contains(&kind) => words::opaque_names_place(&bytes),
            b"iTXt" => match international(&bytes) {
                Some((keyword, text))
                    if keyword == b"XML:com.adobe.xmp" && !text_names_place(&bytes[..text]) =>
                {
                    if xmp::names_place(&bytes[text..]) {
                        let from = chunk.data.start + text as u64;
                        let packet = Extents::one(from..chunk.data.end);
                        self.empty_xmp(&packet, bytes.len() - text)?;
                    }
                    false
                }
                Some(_) => text_names_place(&bytes),
                None => true,
            },
            // Of unknown kind, or `zTXt`: compressed text cannot be changed in place, and is not scanned.
            _ => chunk.kind != *EMPTIED || bytes.iter().any(|byte| *byte != 0),
        };
        let mut kind = chunk.kind;
        if names_place {
            kind = *EMPTIED;
            self.edits.bytes(chunk.data.start - 4, EMPTIED)?;
            self.edits.zero(chunk.data.clone())?;
        }
        if self.edits.mark() > mark {
            self.edits.apply_since(mark, chunk.data.start, &mut bytes);
            let checksum = checksum(&kind, &bytes).to_be_bytes();
            self.edits.bytes(chunk.data.end, &checksum)?;
        }
        Ok(())
    }
}

/// A keyword, a zero, and text; or a whole profile in hexadecimal.
fn text_names_place(bytes: &[u8]) -> bool {
    let text = bytes.iter().copied().filter(|byte| *byte != 0);
    // Its keyword is like a name in XMP.
    let text: Vec<u8> = [b':'].into_iter().chain(text).collect();
    let is_profile = text.to_ascii_lowercase().starts_with(b":raw profile type");
    is_profile || words::text_names_place(&text)
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

/// The checksum of a PNG chunk (PNG specification, annex D), by four bits at a time.
fn checksum(kind: &[u8; 4], data: &[u8]) -> u32 {
    const TABLE: [u32; 16] = [
        0x0000_0000,
        0x1db7_1064,
        0x3b6e_20c8,
        0x26d9_30ac,
        0x76dc_4190,
        0x6b6b_51f4,
        0x4db2_6158,
        0x5005_713c,
        0xedb8_8320,
        0xf00f_9344,
        0xd6d6_a3e8,
        0xcb61_b38c,
        0x9b64_c2b0,
        0x86d3_d2d4,
        0xa00a_e278,
        0xbdbd_f21c,
    ];
    let step = |sum: u32| sum >> 4 ^ TABLE[(sum & 0xf) as usize];
    let bytes = kind.iter().chain(data);
    !bytes.fold(u32::MAX, |sum, byte| step(step(sum ^ u32::from(*byte))))
}

//! JPEG: the segments before, between and behind the scans.

use super::error::{RedactError, Result, ensure, refuse};
use super::extents::Extents;
use super::limits::SEGMENTS_MAX;
use super::search::{Search, count};
use super::{words, xmp};
use std::ops::Range;

const EXIF: &[u8] = b"Exif\0";
const XMP: &[u8] = b"http://ns.adobe.com/xap/1.0/\0";
const EXTENDED_XMP: &[u8] = b"http://ns.adobe.com/xmp/extension/\0";
/// The header of a piece of extended XMP, behind its name: a digest of 32 bytes, the length of the whole
/// and its own offset therein, four bytes each.
type ExtendedXmpHeader = [u8; 40];
/// Bytes of a segment that are scanned together with the next: longer than any word.
const OVERLAP_BYTES: usize = 64;
/// A directory of the images behind this one (CIPA DC-007), in TIFF.
const MULTI_PICTURE: &[u8] = b"MPF\0";
const PROFILE: &[u8] = b"ICC_PROFILE\0";
/// Segments that say how to decode, or how to show a gain map (ISO 21496-1), and text. They stay unless they name a
/// place; all of another kind are emptied: GoPro's APP6 and Kodak's APP3 name one in binary, APP11 in JUMBF.
const KNOWN: [(u8, &[u8]); 9] = [
    (0xe0, b"JFIF\0"),
    (0xe0, b"JFXX\0"),
    (0xe2, PROFILE),
    (0xe2, b"urn:iso:std:iso:ts:21496:-1\0"),
    (0xec, b"Ducky"),
    (0xed, b"Photoshop 3.0\0"),
    (0xed, b"Adobe_CM\0"),
    (0xee, b"Adobe"),
    (COMMENT, b""),
];

const END_OF_IMAGE: u8 = 0xd9;
const START_OF_SCAN: u8 = 0xda;
const COMMENT: u8 = 0xfe;

/// Segments of one kind, which may continue each other. If any may name a place, all are emptied.
#[derive(Default)]
struct Series {
    pieces: Vec<Range<u64>>,
    names_place: bool,
    tail: Vec<u8>,
}

impl Series {
    fn add(&mut self, range: Range<u64>, piece: &[u8], names_place: impl Fn(&[u8]) -> bool) {
        self.tail.extend_from_slice(piece);
        self.names_place |= names_place(&self.tail);
        let keep = self.tail.len().saturating_sub(OVERLAP_BYTES);
        self.tail.drain(..keep);
        self.pieces.push(range);
    }
}

/// What one image has in several segments.
#[derive(Default)]
struct Joined {
    /// XMP: the main packet has a digest of the pieces of the extended one.
    xmp: Series,
    /// The digest of the extended packet, and the offset of its next piece.
    next: Option<([u8; 32], u32)>,
    known: [Series; KNOWN.len()],
}

impl Joined {
    fn main(&mut self, range: Range<u64>, packet: &[u8]) {
        self.xmp.names_place |= xmp::names_place(packet);
        self.xmp.pieces.push(range);
    }

    /// A piece of extended XMP: `header` is its digest, length and offset.
    fn extended(&mut self, range: Range<u64>, header: &ExtendedXmpHeader, piece: &[u8]) {
        let [digest @ .., _, _, _, _, a, b, c, d] = *header;
        let offset = u32::from_be_bytes([a, b, c, d]);
        // Pieces in another order could hide a word where they meet.
        let expected = self.next.unwrap_or((digest, 0));
        self.xmp.names_place |= expected != (digest, offset);
        self.next = Some((digest, offset.wrapping_add(piece.len() as u32)));
        self.xmp.add(range, piece, words::text_names_place);
    }
}

impl Search<'_> {
    pub(super) fn jpeg_file(&mut self, range: Range<u64>) -> Result<()> {
        let end = self.jpeg(range.clone())?;
        self.trailer(end..range.end)
    }

    /// A JPEG at the beginning of `range`; returns its end.
    pub(super) fn jpeg(&mut self, range: Range<u64>) -> Result<u64> {
        let begins =
            range.end - range.start >= 4 && self.source.array(range.start)? == [0xff, 0xd8];
        ensure(begins, "a JPEG without a beginning")?;
        let mut joined = Joined::default();
        let end = self.segments(range.start + 2..range.end, &mut joined)?;
        if joined.xmp.names_place {
            for piece in joined.xmp.pieces {
                let length = (piece.end - piece.start) as usize;
                self.empty_xmp(&Extents::one(piece), length)?;
            }
        }
        for series in joined.known.into_iter().filter(|it| it.names_place) {
            for piece in series.pieces {
                self.empty(piece)?;
            }
        }
        Ok(end)
    }

    fn segments(&mut self, range: Range<u64>, joined: &mut Joined) -> Result<u64> {
        let mut at = range.start;
        let mut scan = None;
        loop {
            count(&mut self.segments, SEGMENTS_MAX, "too many segments")?;
            if range.end - at < 2 {
                let scan = scan.ok_or(RedactError::Unparsable("a JPEG without an image"))?;
                // Cut off in a scan: the rest is coded data, unless something was appended to it.
                let head = self.next_head(scan..range.end)?;
                ensure(head.is_none(), "a film in a JPEG without an end")?;
                return Ok(range.end);
            }
            let [lead, marker] = self.source.array(at)?;
            match (lead, marker) {
                (0xff, 0xff) => at += 1,
                (0xff, END_OF_IMAGE) => return Ok(at + 2),
                (0xff, 0x01 | 0xd0..=0xd7) => at += 2,
                (0xff, 0x02..=0xbf | 0xd8 | 0x00) | (0..=0xfe, _) => {
                    return refuse("something between JPEG segments");
                }
                (0xff, _) => {
                    let end = self.segment(marker, at + 2..range.end, joined)?;
                    at = end;
                    if marker == START_OF_SCAN {
                        at = self.scan(end..range.end)?;
                        scan = Some(end);
                    }
                }
            }
        }
    }

    /// A segment, with its length at the beginning of `range`; returns its end.
    fn segment(&mut self, marker: u8, range: Range<u64>, joined: &mut Joined) -> Result<u64> {
        ensure(range.end - range.start >= 2, "a JPEG that is cut off")?;
        let length = u64::from(u16::from_be_bytes(self.source.array(range.start)?));
        let end = range.start + length;
        ensure(
            length >= 2 && end <= range.end,
            "a JPEG segment without its data",
        )?;
        match marker {
            0xe0..=0xef | COMMENT => {
                self.application_data(marker, range.start + 2..end, joined)?;
            }
            // Frames, tables, scans (ITU-T T.81, table B.1).
            0xc0..=0xc7 | 0xc9..=0xcf | 0xda..=0xdf => {}
            _ => return refuse("a JPEG segment of unknown kind"),
        }
        Ok(end)
    }

    fn application_data(
        &mut self,
        marker: u8,
        range: Range<u64>,
        joined: &mut Joined,
    ) -> Result<()> {
        let payload = self.source.bytes(range.clone())?;
        let behind = |count: usize| range.start + count as u64..range.end;
        if payload.starts_with(EXIF) {
            // "Exif", zero, and a byte that should be zero.
            let block = payload.get(6..);
            let block = block.ok_or(RedactError::Unparsable("an empty EXIF segment"))?;
            return self.tiff(&Extents::one(behind(6)), 0, block);
        }
        if let Some(packet) = payload.strip_prefix(XMP) {
            joined.main(behind(XMP.len()), packet);
            return Ok(());
        }
        if let Some(rest) = payload.strip_prefix(EXTENDED_XMP) {
            let parts = rest.split_first_chunk();
            let (header, piece) =
                parts.ok_or(RedactError::Unparsable("extended XMP without a header"))?;
            joined.extended(behind(payload.len() - piece.len()), header, piece);
            return Ok(());
        }
        if payload.starts_with(b"FLIR\0") {
            return refuse("thermal data with places inside");
        }
        if let Some(block) = payload.strip_prefix(MULTI_PICTURE) {
            return self.tiff(&Extents::one(behind(MULTI_PICTURE.len())), 0, block);
        }
        let named = |(kind, name): &(u8, &[u8])| *kind == marker && payload.starts_with(name);
        let names_place = |bytes: &[u8]| {
            marker == COMMENT && words::text_names_place(bytes) || words::opaque_names_place(bytes)
        };
        match KNOWN.iter().position(named) {
            Some(kind) => {
                let name = KNOWN[kind].1;
                // Behind the name of a profile, its number and how many there are.
                let skip = name.len() + if name == PROFILE { 2 } else { 0 };
                let piece = payload.get(skip..).unwrap_or_default();
                joined.known[kind].add(range, piece, names_place);
            }
            None => self.empty(range)?,
        }
        Ok(())
    }

    /// Compressed data at the beginning of `range`; returns where the next marker is.
    fn scan(&mut self, range: Range<u64>) -> Result<u64> {
        let mut after_lead = false;
        let marker = self.source.scan(range.clone(), 0, |at, piece| {
            // The marker's 0xff may be in the piece before.
            next_marker(piece, &mut after_lead).map(|marker| at + marker as u64 - 1)
        })?;
        Ok(marker.unwrap_or(range.end))
    }
}

/// The second byte of the marker that ends the data in `piece`. `after_lead`: the byte before was 0xff.
fn next_marker(piece: &[u8], after_lead: &mut bool) -> Option<usize> {
    let mut at = 0;
    loop {
        if !*after_lead {
            at += memchr::memchr(0xff, &piece[at..])? + 1;
            *after_lead = true;
        }
        match piece.get(at)? {
            0x00 | 0xd0..=0xd7 => *after_lead = false,
            0xff => {}
            _ => return Some(at),
        }
        at += 1;
    }
}

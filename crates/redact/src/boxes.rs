//! The boxes of HEIF files (ISO/IEC 14496-12).

use super::error::{RedactError, Result, ensure, refuse};
use super::extents::Extents;
use super::limits::BOXES_MAX;
use super::search::{Search, count};
use std::ops::Range;

#[derive(Clone, Debug)]
pub(super) struct BoxAt {
    pub(super) kind: [u8; 4],
    start: u64,
    /// Behind size and type.
    pub(super) body: Range<u64>,
}

/// What is found where a box should begin.
pub(super) enum Next {
    Box(BoxAt),
    /// A box that is longer than its parent.
    CutOff(BoxAt),
    Nothing,
}

const XMP: [u8; 16] = *b"\xbe\x7a\xcf\xcb\x97\xa9\x42\xe8\x9c\x71\x99\x94\x91\xe3\xaf\xac";
const USER_TYPE_BYTES: u64 = 16;

impl Search<'_> {
    /// What begins at the start of `range`. At the top of a file a box may reach to the end.
    pub(super) fn next_box(&mut self, range: Range<u64>, top: bool) -> Result<Next> {
        let room = range.end - range.start;
        if room < 8 {
            return Ok(Next::Nothing);
        }
        count(&mut self.boxes, BOXES_MAX, "too many boxes")?;
        let start = range.start;
        let small = u64::from(self.source.u32_big(start)?);
        let kind: [u8; 4] = self.source.array(start + 4)?;
        let (header, size) = match small {
            0 if top => (8, room),
            1 if room >= 16 => (16, u64::from_be_bytes(self.source.array(start + 8)?)),
            _ => (8, small),
        };
        let printable = |byte: &u8| matches!(byte, 0x20..=0x7e);
        if size < header || !kind.iter().all(printable) {
            return Ok(Next::Nothing);
        }
        let end = start + size.min(room);
        let body = start + header..end;
        let found = BoxAt { kind, start, body };
        Ok(if size > room {
            Next::CutOff(found)
        } else {
            Next::Box(found)
        })
    }

    pub(super) fn children(&mut self, range: Range<u64>) -> Result<Vec<BoxAt>> {
        let mut children = Vec::new();
        let mut at = range.start;
        while at < range.end {
            match self.next_box(at..range.end, false)? {
                Next::Box(child) => {
                    at = child.body.end;
                    children.push(child);
                }
                Next::CutOff(_) | Next::Nothing => return refuse("something between boxes"),
            }
        }
        Ok(children)
    }

    /// Turns a box into one of zeros that readers skip.
    fn empty_box(&mut self, at: &BoxAt) -> Result<()> {
        self.edits.bytes(at.start + 4, b"free")?;
        self.edits.zero(at.body.clone())
    }

    /// A box that may be anywhere, or an unknown one, which is emptied.
    pub(super) fn other_box(&mut self, at: &BoxAt) -> Result<()> {
        match &at.kind {
            b"free" | b"skip" => self.empty(at.body.clone()),
            b"uuid" => self.user_type(at),
            _ => self.empty_box(at),
        }
    }

    fn user_type(&mut self, at: &BoxAt) -> Result<()> {
        let size = at.body.end - at.body.start;
        ensure(size >= USER_TYPE_BYTES, "a box without its type")?;
        match self.source.array(at.body.start)? {
            XMP => self.xmp(&Extents::one(at.body.start + USER_TYPE_BYTES..at.body.end)),
            _ => self.empty_box(at),
        }
    }
}

pub(super) struct Fields<'a> {
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .bytes
            .split_at_checked(count)
            .ok_or(RedactError::Unparsable("a box without all of its fields"))?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// An unsigned number of so many bytes, up to eight; zero for none.
    pub(super) fn number(&mut self, bytes: usize) -> Result<u64> {
        let taken = self.take(bytes)?;
        Ok(taken
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub(super) fn version(&mut self) -> Result<(u8, u32)> {
        let word = self.number(4)? as u32;
        Ok(((word >> 24) as u8, word & 0xff_ffff))
    }

    /// Text up to a zero, or to the end.
    pub(super) fn text(&mut self) -> &'a [u8] {
        let end = memchr::memchr(0, self.bytes).unwrap_or(self.bytes.len());
        let text = &self.bytes[..end];
        self.bytes = self.bytes.get(end + 1..).unwrap_or_default();
        text
    }
}

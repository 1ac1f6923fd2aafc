//! `meta` boxes: the items of HEIF, and the keys and values of QuickTime and iTunes.

use super::boxes::{BoxAt, Fields};
use super::extents::Extents;
use super::movie::Movie;
use super::search::Search;
use super::{RedactError, Result, words};
use std::ops::Range;

const HARMLESS: [&[u8; 4]; 12] = [
    b"hdlr", b"pitm", b"iref", b"idat", b"dinf", b"ipro", b"grpl", b"mhdr", b"fiin", b"fire",
    b"strk", b"iinf",
];
/// Type and language of a value.
const VALUE_HEADER_BYTES: u64 = 8;

impl Search<'_> {
    /// A `meta` box.
    pub(super) fn meta(&mut self, at: &BoxAt, movie: &mut Movie) -> Result<()> {
        let body = self.meta_body(at)?;
        let children = self.children(body)?;
        let find = |kind: &[u8; 4]| children.iter().filter(|at| &at.kind == kind).count();
        for single in [b"iinf", b"iloc", b"idat", b"keys", b"ilst"] {
            if find(single) > 1 {
                return Err(RedactError::Unparsable("two lists of one kind"));
            }
        }
        let keys = self.keys(&children)?;
        for child in &children {
            match &child.kind {
                b"keys" => {}
                b"ilst" => self.values(child, &keys)?,
                b"iloc" => self.items(&children, movie)?,
                b"xml " | b"bxml" => self.xml(child)?,
                b"iprp" => self.properties(child)?,
                b"udta" => self.empty_box(child)?,
                kind if HARMLESS.contains(&kind) => {}
                _ => self.common_or_empty(child)?,
            }
        }
        Ok(())
    }

    /// Where the boxes begin: ISO files have version and flags before them, QuickTime has not.
    fn meta_body(&mut self, at: &BoxAt) -> Result<Range<u64>> {
        let size = at.body.end - at.body.start;
        if size == 0 {
            return Ok(at.body.clone());
        }
        let quick_time = size >= 8 && self.source.array(at.body.start + 4)? == *b"hdlr";
        if quick_time {
            return Ok(at.body.clone());
        }
        if size < 4 {
            return Err(RedactError::Unparsable("a box without all of its fields"));
        }
        Ok(at.body.start + 4..at.body.end)
    }

    /// For each key, counted from 1, whether its name is that of a place.
    fn keys(&mut self, children: &[BoxAt]) -> Result<Vec<bool>> {
        let Some(at) = children.iter().find(|at| &at.kind == b"keys") else {
            return Ok(Vec::new());
        };
        let body = self.source.bytes(at.body.clone())?;
        let mut fields = Fields::new(&body);
        fields.version()?;
        let count = fields.number(4)?;
        let mut keys = Vec::new();
        for _ in 0..count {
            let size = (fields.number(4)? as usize).checked_sub(4);
            let name = fields.take(size.ok_or(RedactError::Unparsable("a key"))?)?;
            keys.push(words::fields_name_place(name));
        }
        Ok(keys)
    }

    fn values(&mut self, at: &BoxAt, keys: &[bool]) -> Result<()> {
        for value in self.value_boxes(at.body.clone())? {
            let (kind, body) = value;
            let index = u32::from_be_bytes(kind) as usize;
            let by_key = index.checked_sub(1).and_then(|index| keys.get(index));
            let by_name = &kind == b"\xa9xyz" || &kind == b"loci";
            let bytes = self.source.bytes(body.clone())?;
            if by_name
                || by_key.is_some_and(|names_place| *names_place)
                || words::opaque_names_place(&bytes)
                || words::holds_iso6709(&bytes)
                || &kind == b"----" && words::fields_name_place(&bytes)
            {
                self.empty_value(body)?;
            }
        }
        Ok(())
    }

    /// Boxes whose types are numbers.
    fn value_boxes(&mut self, range: Range<u64>) -> Result<Vec<([u8; 4], Range<u64>)>> {
        let mut boxes = Vec::new();
        let mut at = range.start;
        while at < range.end {
            super::search::count(&mut self.boxes, super::limits::BOXES_MAX, "too many boxes")?;
            if range.end - at < 8 {
                return Err(RedactError::Unparsable("something between boxes"));
            }
            let size = u64::from(self.source.u32_big(at)?);
            if size < 8 || size > range.end - at {
                return Err(RedactError::Unparsable("a value without its data"));
            }
            boxes.push((self.source.array(at + 4)?, at + 8..at + size));
            at += size;
        }
        Ok(boxes)
    }

    /// Zeros what an entry of the list says, and leaves the entry.
    fn empty_value(&mut self, body: Range<u64>) -> Result<()> {
        for (kind, data) in self.value_boxes(body)? {
            let skip = match &kind {
                b"data" => VALUE_HEADER_BYTES,
                b"mean" | b"name" => continue,
                _ => 0,
            };
            self.edits
                .zero((data.start + skip).min(data.end)..data.end)?;
        }
        Ok(())
    }

    fn xml(&mut self, at: &BoxAt) -> Result<()> {
        let text = self.source.bytes(at.body.clone())?;
        match &at.kind == b"bxml" || words::fields_name_place(&text) {
            true => self.empty_box(at),
            false => Ok(()),
        }
    }

    /// Properties of pictures. Emptying them would change how they are decoded.
    fn properties(&mut self, at: &BoxAt) -> Result<()> {
        let bytes = Extents::one(at.body.clone()).read(&mut self.source)?;
        match words::opaque_names_place(&bytes) {
            true => Err(RedactError::Unparsable(
                "a place among the picture's properties",
            )),
            false => Ok(()),
        }
    }
}

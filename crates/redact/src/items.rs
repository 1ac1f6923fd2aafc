//! The items of HEIF: EXIF blocks and XMP packets beside coded pictures, with their types in `iinf` and
//! their places in `iloc`.

use super::boxes::{BoxAt, Fields};
use super::error::{RedactError, Result, ensure, refuse};
use super::exif;
use super::extents::Extents;
use super::heif::Heif;
use super::limits::{ITEMS_MAX, RANGES_MAX};
use super::search::Search;
use super::words;
use std::collections::BTreeMap;
use std::ops::Range;

/// Coded and derived pictures (ISO/IEC 23008-12, 23001-17, AVIF).
const PICTURES: [&[u8; 4]; 19] = [
    b"hvc1", b"hev1", b"lhv1", b"avc1", b"av01", b"vvc1", b"grid", b"iden", b"iovl", b"tmap",
    b"j2k1", b"unci", b"mski", b"hvt1", b"vvs1", b"evc1", b"evs1", b"jxs1", b"sato",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Picture,
    Exif,
    Xmp,
    Jpeg,
    /// Encoded, protected, or of another kind: `uri `, `rgan` (regions), texts.
    Unknown,
}

/// The base of an item's offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    FromFile,
    FromItemData,
    Otherwise,
}

struct Place {
    item: u64,
    counted: Counted,
    pieces: Vec<(u64, u64)>,
}

impl Search<'_> {
    /// Scans the items of a `meta` box with these children.
    pub(super) fn items(&mut self, children: &[BoxAt], heif: &mut Heif) -> Result<()> {
        let find = |kind: &[u8; 4]| children.iter().find(|at| &at.kind == kind);
        let kinds = match find(b"iinf") {
            Some(at) => {
                let body = self.source.bytes(at.body.clone())?;
                item_kinds(&body)?
            }
            None => BTreeMap::new(),
        };
        let Some(at) = find(b"iloc") else {
            return Ok(());
        };
        let body = self.source.bytes(at.body.clone())?;
        let item_data = find(b"idat").map(|at| at.body.clone());
        for place in item_places(&body)? {
            let holds = kinds.get(&place.item).copied().unwrap_or(Holds::Unknown);
            if holds != Holds::Picture {
                let extents = extents(&place, item_data.clone(), heif)?;
                self.item(holds, &extents)?;
            }
        }
        Ok(())
    }

    fn item(&mut self, holds: Holds, extents: &Extents) -> Result<()> {
        match holds {
            Holds::Picture => Ok(()),
            Holds::Exif => self.exif_item(extents),
            Holds::Xmp => self.xmp(extents),
            Holds::Jpeg => self.jpeg_item(extents),
            Holds::Unknown => extents.zero_all(&mut self.edits),
        }
    }

    /// Its first four bytes are the offset of the TIFF header behind them.
    fn exif_item(&mut self, extents: &Extents) -> Result<()> {
        let all = extents.read(&mut self.source)?;
        if all.is_empty() {
            return Ok(());
        }
        let mut fields = Fields::new(&all);
        let skip = fields.number(4)? as usize;
        if !matches!(fields.take(skip)?, b"" | exif::PREFIX) {
            extents.zero(&mut self.edits, 4..4 + skip)?;
        }
        let block = fields.rest();
        // Some writers count from behind it.
        let block = block.strip_prefix(exif::PREFIX).unwrap_or(block);
        self.tiff(extents, all.len() - block.len(), block)
    }

    fn jpeg_item(&mut self, extents: &Extents) -> Result<()> {
        let bytes = extents.read(&mut self.source)?;
        let mark = self.edits.mark();
        let found = match extents.contiguous() {
            Some(range) => self.inside(|search| search.jpeg_file(range)),
            None => refuse("a JPEG in pieces"),
        };
        match found {
            // Its beginning may be among the properties.
            Err(RedactError::Unparsable(_)) if !words::holds_metadata(&bytes) => {
                self.edits.undo_to(mark);
                Ok(())
            }
            found => found,
        }
    }
}

fn extents(place: &Place, item_data: Option<Range<u64>>, heif: &mut Heif) -> Result<Extents> {
    let range = |&(offset, length): &(u64, u64)| match (place.counted, &item_data) {
        (Counted::FromFile, _) => heif.locate(offset, length),
        (Counted::FromItemData, Some(data)) => {
            let start = data.start.saturating_add(offset);
            let end = start.saturating_add(length);
            ensure(end <= data.end, "an item behind the end")?;
            Ok(start..end)
        }
        _ => refuse("an item in another place"),
    };
    let ranges: Result<_> = place.pieces.iter().map(range).collect();
    ranges.map(Extents)
}

/// The content of each item, from the body of `iinf`.
fn item_kinds(body: &[u8]) -> Result<BTreeMap<u64, Holds>> {
    let mut fields = Fields::new(body);
    let (version, _) = fields.version()?;
    let count = fields.number(if version == 0 { 2 } else { 4 })?;
    ensure(count <= u64::from(ITEMS_MAX), "too many items")?;
    let mut kinds = BTreeMap::new();
    for _ in 0..count {
        let size = (fields.number(4)? as usize).checked_sub(8);
        ensure(fields.take(4)? == b"infe", "an item that is none")?;
        let entry = fields.take(size.ok_or(RedactError::Unparsable("an item"))?)?;
        let (item, holds) = item_kind(Fields::new(entry))?;
        let before = kinds.insert(item, holds);
        ensure(
            before.is_none_or(|before| before == holds),
            "an item of two kinds",
        )?;
    }
    Ok(kinds)
}

fn item_kind(mut fields: Fields<'_>) -> Result<(u64, Holds)> {
    let (version, _) = fields.version()?;
    let item = fields.number(if version == 3 { 4 } else { 2 })?;
    let protection = fields.number(2)?;
    if version < 2 {
        fields.text();
        let content = fields.text();
        return Ok((item, text_item(content, fields.text())));
    }
    let kind = fields.take(4)?;
    let holds = match kind {
        b"Exif" => Holds::Exif,
        b"jpeg" => Holds::Jpeg,
        b"mime" => {
            fields.text();
            let content = fields.text();
            text_item(content, fields.text())
        }
        kind if PICTURES.iter().any(|picture| picture.as_slice() == kind) => Holds::Picture,
        _ => Holds::Unknown,
    };
    let sealed = protection != 0 && holds != Holds::Picture;
    Ok((item, if sealed { Holds::Unknown } else { holds }))
}

/// The content of an item by its content type and encoding.
fn text_item(content: &[u8], encoding: &[u8]) -> Holds {
    let content = content.to_ascii_lowercase();
    let names = |word: &[u8]| memchr::memmem::find(&content, word).is_some();
    if !encoding.is_empty() {
        return Holds::Unknown;
    }
    match () {
        () if names(b"xml") || names(b"xmp") || names(b"rdf") => Holds::Xmp,
        () if names(b"image/jp") => Holds::Jpeg,
        () if names(b"exif") => Holds::Exif,
        () => Holds::Unknown,
    }
}

/// The place of each item, from the body of `iloc`.
fn item_places(body: &[u8]) -> Result<Vec<Place>> {
    let mut fields = Fields::new(body);
    let (version, _) = fields.version()?;
    let widths = fields.number(2)? as usize;
    let width = |shift: usize| match widths >> shift & 0xf {
        width @ (0 | 4 | 8) => Ok(width),
        _ => refuse("a place of odd size"),
    };
    let (offset, length, base) = (width(12)?, width(8)?, width(4)?);
    let index = if version == 0 { 0 } else { width(0)? };
    let count = fields.number(if version < 2 { 2 } else { 4 })?;
    ensure(count <= u64::from(ITEMS_MAX), "too many items")?;
    let mut places = Vec::new();
    let mut all_pieces = 0;
    for _ in 0..count {
        let item = fields.number(if version < 2 { 2 } else { 4 })?;
        let method = if version == 0 {
            0
        } else {
            fields.number(2)? & 0xf
        };
        let other_file = fields.number(2)? != 0;
        let base = fields.number(base)?;
        let mut pieces = Vec::new();
        for _ in 0..fields.number(2)? {
            all_pieces += 1;
            ensure(all_pieces <= RANGES_MAX, "too many ranges")?;
            fields.number(index)?;
            let start = base.checked_add(fields.number(offset)?);
            let start = start.ok_or(RedactError::Unparsable("data behind the end"))?;
            pieces.push((start, fields.number(length)?));
        }
        // A single piece without a length is the whole file.
        let whole = matches!(pieces.as_slice(), [(_, 0)]);
        let counted = match method {
            _ if other_file || whole => Counted::Otherwise,
            0 => Counted::FromFile,
            1 => Counted::FromItemData,
            _ => Counted::Otherwise,
        };
        places.push(Place {
            item,
            counted,
            pieces,
        });
    }
    Ok(places)
}

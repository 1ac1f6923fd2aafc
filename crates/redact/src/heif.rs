//! HEIF files (HEIC, AVIF): boxes, of which `meta` says where in `mdat` the items are.

use super::boxes::{BoxAt, Next};
use super::error::{RedactError, Result, ensure, refuse};
use super::limits::RANGES_MAX;
use super::search::Search;
use super::words;
use std::ops::Range;

/// Boxes in `meta` that say how to show the picture.
const HARMLESS: [&[u8; 4]; 6] = [b"hdlr", b"pitm", b"iref", b"dinf", b"ipro", b"grpl"];
/// Properties that say how to decode and show a picture (ISO/IEC 23008-12, 14496-12, 14496-15, 23001-17, AVIF). Others
/// are emptied: `udes` and `altt` are text, `cmex` is where the camera was, `uuid` is anything.
const PROPERTIES: [&[u8; 4]; 45] = [
    b"hvcC", b"lhvC", b"av1C", b"avcC", b"vvcC", b"vvnC", b"evcC", b"jpgC", b"j2kH", b"jxsH",
    b"uncC", b"cmpd", b"cmpC", b"icef", b"cpat", b"splz", b"sbpm", b"snuc", b"cloc", b"disi",
    b"ispe", b"pixi", b"pasp", b"colr", b"clap", b"irot", b"imir", b"iscl", b"rloc", b"rref",
    b"auxC", b"lsel", b"tols", b"oinf", b"a1op", b"a1lx", b"clli", b"mdcv", b"cclv", b"amve",
    b"reve", b"ndwt", b"cmin", b"mskC", b"crtt",
];

pub(super) struct Heif {
    end: u64,
    /// A box described the data.
    described: bool,
    /// The bodies of `mdat` boxes.
    data: Vec<Range<u64>>,
    /// Ranges that have to be in them.
    within_data: Vec<Range<u64>>,
}

impl Heif {
    /// The range of `length` bytes at an offset, which has to be in the data.
    pub(super) fn locate(&mut self, offset: u64, length: u64) -> Result<Range<u64>> {
        let end = offset.checked_add(length).filter(|end| *end <= self.end);
        let range = offset..end.ok_or(RedactError::Unparsable("data behind the end"))?;
        ensure(self.within_data.len() < RANGES_MAX, "too many ranges")?;
        self.within_data.push(range.clone());
        Ok(range)
    }

    /// Checks made once the whole file was scanned.
    fn check(mut self) -> Result<()> {
        ensure(self.described, "data without a description")?;
        self.data.sort_by_key(|data| data.start);
        let lies_in_data = |range: &Range<u64>| {
            let before = self.data.partition_point(|data| data.start <= range.start);
            range.is_empty() || before > 0 && range.end <= self.data[before - 1].end
        };
        ensure(
            self.within_data.iter().all(lies_in_data),
            "metadata outside the data",
        )
    }
}

impl Search<'_> {
    /// A HEIF file and what follows it.
    pub(super) fn heif(&mut self, range: Range<u64>) -> Result<()> {
        let mut heif = Heif {
            end: range.end,
            described: false,
            data: Vec::new(),
            within_data: Vec::new(),
        };
        let mut at = range.start;
        while at < range.end {
            let found = match self.next_box(at..range.end, true)? {
                // The film of a motion photo.
                Next::Box(found) if &found.kind == b"ftyp" && at > range.start => break,
                Next::Box(found) => found,
                Next::CutOff(found) if &found.kind == b"mdat" => found,
                Next::CutOff(_) | Next::Nothing => break,
            };
            at = found.body.end;
            self.top_box(&found, &mut heif)?;
        }
        heif.check()?;
        self.empty(at..range.end)
    }

    fn top_box(&mut self, at: &BoxAt, heif: &mut Heif) -> Result<()> {
        match &at.kind {
            b"ftyp" => Ok(()),
            b"mdat" => {
                heif.data.push(at.body.clone());
                Ok(())
            }
            b"meta" => {
                heif.described = true;
                self.meta(at, heif)
            }
            // The samples of a sequence are in `mdat`, and some may be measurements.
            b"moov" | b"moof" => refuse("a film beside a picture"),
            // Also `mpvd`, the film of a motion photo.
            _ => self.other_box(at),
        }
    }

    fn meta(&mut self, at: &BoxAt, heif: &mut Heif) -> Result<()> {
        // Behind the version and flags.
        let body = at.body.start + 4..at.body.end;
        ensure(body.start <= body.end, "a box without all of its fields")?;
        let children = self.children(body)?;
        for single in [b"iinf", b"iloc", b"idat"] {
            let lists = children.iter().filter(|at| &at.kind == single);
            ensure(lists.count() < 2, "two lists of one kind")?;
        }
        for child in &children {
            match &child.kind {
                b"iloc" => self.items(&children, heif)?,
                b"iprp" => self.properties(child)?,
                // Its items are scanned like those in `mdat`.
                b"idat" => {}
                // An item of the type `Exif` without a name looks like a block.
                b"iinf" => self.names_no_place(child, words::holds_words)?,
                kind if HARMLESS.contains(&kind) => {
                    self.names_no_place(child, words::opaque_names_place)?;
                }
                _ => self.other_box(child)?,
            }
        }
        Ok(())
    }

    /// Properties of pictures. They are referred to by their numbers, which an emptied one keeps.
    fn properties(&mut self, at: &BoxAt) -> Result<()> {
        for child in self.children(at.body.clone())? {
            match &child.kind {
                b"ipco" => self.property_list(&child)?,
                b"ipma" => {}
                _ => self.other_box(&child)?,
            }
        }
        Ok(())
    }

    fn property_list(&mut self, at: &BoxAt) -> Result<()> {
        for property in self.children(at.body.clone())? {
            if !PROPERTIES.contains(&&property.kind) {
                self.other_box(&property)?;
                continue;
            }
            self.names_no_place(&property, words::opaque_names_place)?;
        }
        Ok(())
    }

    fn names_no_place(&mut self, at: &BoxAt, names_place: fn(&[u8]) -> bool) -> Result<()> {
        let bytes = self.source.bytes(at.body.clone())?;
        let error = "a place in what says how to show the picture";
        ensure(!names_place(&bytes), error)
    }
}

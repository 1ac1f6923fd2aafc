//! Files of boxes: HEIF, MP4 and MOV, whole or behind a JPEG. All kinds are walked alike, because
//! they mix: image sequences have a `moov`, films have items.

use super::boxes::{BoxAt, Fields, Next};
use super::extents::Extents;
use super::limits::RANGES_MAX;
use super::search::Search;
use super::{RedactError, Result, words};
use std::ops::Range;

/// Boxes at the top that say how to play.
const HARMLESS_TOP: [&[u8; 4]; 8] = [
    b"ftyp", b"styp", b"mfra", b"sidx", b"ssix", b"prft", b"pdin", b"pnot",
];
const HARMLESS_IN_MOVIE: [&[u8; 4]; 7] = [
    b"mvhd", b"iods", b"mvex", b"ainf", b"pssh", b"ctab", b"prfl",
];
const HARMLESS_IN_FRAGMENT: [&[u8; 4]; 14] = [
    b"mfhd", b"tfhd", b"tfdt", b"trun", b"sbgp", b"sgpd", b"saiz", b"saio", b"senc", b"subs",
    b"cslg", b"csgp", b"pssh", b"sdtp",
];

/// What is known of one file of boxes while it is walked.
pub(super) struct Movie {
    /// Where the file begins: offsets in it count from there.
    pub(super) base: u64,
    pub(super) end: u64,
    /// Whether something said what the data are.
    described: bool,
    fragments: bool,
    /// Tracks whose samples are emptied or looked through, which is not done in fragments.
    pub(super) tracks_by_sample: u32,
    /// The bodies of `mdat` boxes.
    data: Vec<Range<u64>>,
    /// What has to lie in them.
    within_data: Vec<Range<u64>>,
    /// What lies in them and goes.
    emptied: Vec<Range<u64>>,
}

impl Movie {
    /// Where `length` bytes at an offset lie in the file.
    pub(super) fn locate(&self, offset: u64, length: u64) -> Result<Range<u64>> {
        let start = self.base.checked_add(offset);
        let end = start.and_then(|start| start.checked_add(length));
        match (start, end) {
            (Some(start), Some(end)) if end <= self.end => Ok(start..end),
            _ => Err(RedactError::Unparsable("data behind the end")),
        }
    }

    /// Remembers that a range has to lie in the data.
    pub(super) fn lies_in_data(&mut self, range: Range<u64>) -> Result<()> {
        remember(&mut self.within_data, range)
    }

    /// Remembers that a range of the data goes.
    pub(super) fn goes(&mut self, range: Range<u64>) -> Result<()> {
        remember(&mut self.emptied, range)
    }
}

fn remember(ranges: &mut Vec<Range<u64>>, range: Range<u64>) -> Result<()> {
    if ranges.len() >= RANGES_MAX {
        return Err(RedactError::Unparsable("too many ranges"));
    }
    ranges.push(range);
    Ok(())
}

impl Search<'_> {
    /// A file of boxes and whatever comes behind it.
    pub(super) fn movie_file(&mut self, range: Range<u64>) -> Result<()> {
        let end = self.movie_in(range.clone())?;
        self.empty(end..range.end)
    }

    /// A file of boxes at the beginning of `range`; says where it ends.
    pub(super) fn movie_in(&mut self, range: Range<u64>) -> Result<u64> {
        let mut movie = Movie {
            base: range.start,
            end: range.end,
            described: false,
            fragments: false,
            tracks_by_sample: 0,
            data: Vec::new(),
            within_data: Vec::new(),
            emptied: Vec::new(),
        };
        let mut at = range.start;
        while at < range.end {
            match self.next_box(at..range.end, true)? {
                Next::Box(found) => {
                    at = found.body.end;
                    self.top_box(&found, &mut movie)?;
                }
                // A recording that was cut off, with its description before it.
                Next::CutOff(found) if &found.kind == b"mdat" => {
                    at = found.body.end;
                    self.top_box(&found, &mut movie)?;
                }
                Next::CutOff(_) | Next::Nothing => break,
            }
        }
        if !movie.described {
            return Err(RedactError::Unparsable("data without a description"));
        }
        self.finish_movie(movie)?;
        Ok(at)
    }

    fn top_box(&mut self, at: &BoxAt, movie: &mut Movie) -> Result<()> {
        match &at.kind {
            b"ftyp" => self.brand(at),
            b"mdat" => {
                movie.data.push(at.body.clone());
                Ok(())
            }
            b"moov" => {
                movie.described = true;
                self.moov(at, movie)
            }
            b"moof" => {
                movie.described = true;
                movie.fragments = true;
                self.fragment(at, movie)
            }
            b"meta" => {
                movie.described = true;
                self.meta(at, movie)
            }
            b"udta" => self.user_data(at, movie),
            // The film of a motion photo.
            b"mpvd" => {
                let end = self.inside(|search| search.movie_in(at.body.clone()))?;
                self.empty(end..at.body.end)
            }
            b"emsg" => self.opaque(&Extents::one(at.body.clone())),
            kind if HARMLESS_TOP.contains(&kind) => Ok(()),
            _ => self.common_or_empty(at),
        }
    }

    /// A box that may stand anywhere, or one that is not known and is emptied.
    pub(super) fn common_or_empty(&mut self, at: &BoxAt) -> Result<()> {
        match self.common_box(at)? {
            true => Ok(()),
            false => self.empty_box(at),
        }
    }

    fn brand(&mut self, at: &BoxAt) -> Result<()> {
        let brand = match at.body.end - at.body.start {
            0..4 => return Err(RedactError::Unparsable("a file type without a name")),
            _ => self.source.array(at.body.start)?,
        };
        match &brand {
            b"crx " => Err(RedactError::Unparsable("a raw image in boxes")),
            _ => Ok(()),
        }
    }

    fn moov(&mut self, at: &BoxAt, movie: &mut Movie) -> Result<()> {
        for child in self.children(at.body.clone())? {
            match &child.kind {
                b"trak" => self.track(&child, movie)?,
                b"meta" => self.meta(&child, movie)?,
                b"udta" => self.user_data(&child, movie)?,
                b"gps " => self.log_index(&child, movie)?,
                b"cmov" => return Err(RedactError::Unparsable("a compressed description")),
                kind if HARMLESS_IN_MOVIE.contains(&kind) => {}
                _ => self.common_or_empty(&child)?,
            }
        }
        Ok(())
    }

    fn fragment(&mut self, at: &BoxAt, movie: &mut Movie) -> Result<()> {
        for child in self.children(at.body.clone())? {
            match &child.kind {
                b"traf" => {
                    for part in self.children(child.body.clone())? {
                        self.fragment_part(&part, movie)?;
                    }
                }
                _ => self.fragment_part(&child, movie)?,
            }
        }
        Ok(())
    }

    fn fragment_part(&mut self, at: &BoxAt, movie: &mut Movie) -> Result<()> {
        match &at.kind {
            b"meta" => self.meta(at, movie),
            b"udta" => self.user_data(at, movie),
            kind if HARMLESS_IN_FRAGMENT.contains(&kind) => Ok(()),
            _ => self.common_or_empty(at),
        }
    }

    /// The index that dashboard cameras (Novatek) have: where the pieces of the log lie. Each is
    /// written as a padding box, in the midst of the data.
    fn log_index(&mut self, at: &BoxAt, movie: &mut Movie) -> Result<()> {
        let body = self.source.bytes(at.body.clone())?;
        let mut fields = Fields::new(&body);
        fields.take(4)?;
        let pieces = fields.number(4)?.min((fields.rest().len() / 8) as u64);
        for _ in 0..pieces {
            let (offset, length) = (fields.number(4)?, fields.number(4)?);
            if offset == 0 || length == 0 {
                continue;
            }
            let range = movie.locate(offset, length)?;
            let head: [u8; 12] = self.source.array(range.start)?;
            if !words::begins_log(&head) {
                return Err(RedactError::Unparsable(
                    "a log that is not where it should be",
                ));
            }
            let known = range.start + head.len() as u64;
            self.edits.zero(known.min(range.end)..range.end)?;
        }
        self.empty_box(at)
    }

    /// Checks and takes out what could be judged only when all of the file was seen.
    fn finish_movie(&mut self, mut movie: Movie) -> Result<()> {
        if movie.fragments && movie.tracks_by_sample > 0 {
            return Err(RedactError::Unparsable("a metadata track in fragments"));
        }
        movie.data.sort_by_key(|data| data.start);
        for range in movie.emptied.iter().chain(&movie.within_data) {
            let before = movie.data.partition_point(|data| data.start <= range.start);
            let inside = before > 0 && range.end <= movie.data[before - 1].end;
            if !inside && range.start < range.end {
                return Err(RedactError::Unparsable("metadata outside the data"));
            }
        }
        movie
            .emptied
            .iter()
            .try_for_each(|range| self.edits.zero(range.clone()))
    }
}

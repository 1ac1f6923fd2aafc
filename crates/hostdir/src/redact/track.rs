//! Tracks: pictures and sound stay; what else is recorded over time is emptied, unless it is known
//! to be harmless.

use super::boxes::{BoxAt, Fields};
use super::limits::TEXT_BYTES_MAX;
use super::movie::Movie;
use super::search::Search;
use super::{RedactError, Result, words};

/// Media whose samples are pictures, sound, timecode, or hints for sending them.
const PICTURES_AND_SOUND: [&[u8; 4]; 10] = [
    b"vide", b"soun", b"auxv", b"pict", b"tmcd", b"hint", b"clcp", b"odsm", b"sdsm", b"volm",
];
const TEXT: [&[u8; 4]; 5] = [b"text", b"sbtl", b"subt", b"subp", b"subs"];
/// Formats of recorders' logs, whatever the track says it is.
const LOGS: [&[u8; 4]; 8] = [
    b"gpmd", b"camm", b"rtmd", b"djmd", b"dbgi", b"fdsc", b"gps ", b"GPS ",
];
const HARMLESS_IN_TRACK: [&[u8; 4]; 13] = [
    b"tkhd", b"edts", b"tref", b"tapt", b"load", b"clip", b"matt", b"imap", b"trgr", b"ludt",
    b"txas", b"prfl", b"strk",
];
const HARMLESS_IN_MEDIA: [&[u8; 4]; 3] = [b"mdhd", b"hdlr", b"elng"];
const HARMLESS_IN_HEADERS: [&[u8; 4]; 10] = [
    b"vmhd", b"smhd", b"hmhd", b"nmhd", b"sthd", b"gmhd", b"dinf", b"hdlr", b"stbl", b"vvhd",
];

/// What a track is made of, as far as it matters here.
#[derive(Default)]
struct Parts {
    handler: Option<[u8; 4]>,
    table: Vec<BoxAt>,
}

enum Fate {
    Stays,
    /// Stays unless the samples log places.
    Captions,
    Goes,
}

impl Search<'_> {
    /// A `trak` box.
    pub(super) fn track(&mut self, at: &BoxAt, movie: &mut Movie) -> Result<()> {
        let mut parts = Parts::default();
        for child in self.children(at.body.clone())? {
            match &child.kind {
                b"mdia" => self.media(&child, movie, &mut parts)?,
                b"meta" => self.meta(&child, movie)?,
                b"udta" => self.user_data(&child, movie)?,
                kind if HARMLESS_IN_TRACK.contains(&kind) => {}
                _ => self.common_or_empty(&child)?,
            }
        }
        match self.fate(&parts)? {
            Fate::Stays => Ok(()),
            Fate::Captions => {
                movie.tracks_by_sample += 1;
                self.captions(&parts, movie)
            }
            Fate::Goes => {
                movie.tracks_by_sample += 1;
                for range in self.samples(&parts.table, movie)? {
                    movie.goes(range)?;
                }
                Ok(())
            }
        }
    }

    fn media(&mut self, at: &BoxAt, movie: &mut Movie, parts: &mut Parts) -> Result<()> {
        for child in self.children(at.body.clone())? {
            match &child.kind {
                b"hdlr" if parts.handler.is_none() => parts.handler = Some(self.handler(&child)?),
                b"minf" => self.media_headers(&child, movie, parts)?,
                b"meta" => self.meta(&child, movie)?,
                b"udta" => self.user_data(&child, movie)?,
                kind if HARMLESS_IN_MEDIA.contains(&kind) => {}
                _ => self.common_or_empty(&child)?,
            }
        }
        Ok(())
    }

    /// Which kind of medium it is: behind version and flags and one more word.
    fn handler(&mut self, at: &BoxAt) -> Result<[u8; 4]> {
        if at.body.end - at.body.start < 12 {
            return Err(RedactError::Unparsable("a track of no kind"));
        }
        self.source.array(at.body.start + 8)
    }

    fn media_headers(&mut self, at: &BoxAt, movie: &mut Movie, parts: &mut Parts) -> Result<()> {
        for child in self.children(at.body.clone())? {
            match &child.kind {
                b"stbl" if parts.table.is_empty() => {
                    parts.table = self.children(child.body.clone())?;
                }
                b"stbl" => return Err(RedactError::Unparsable("two sample tables")),
                b"udta" => self.user_data(&child, movie)?,
                kind if HARMLESS_IN_HEADERS.contains(&kind) => {}
                _ => self.common_or_empty(&child)?,
            }
        }
        Ok(())
    }

    fn fate(&mut self, parts: &Parts) -> Result<Fate> {
        let Some(handler) = parts.handler else {
            return Err(RedactError::Unparsable("a track of no kind"));
        };
        let mut formats = Vec::new();
        let mut names_place = false;
        for description in parts.table.iter().filter(|at| &at.kind == b"stsd") {
            let body = self.source.bytes(description.body.clone())?;
            names_place |= words::fields_name_place(&body);
            formats.extend(sample_formats(&body)?);
        }
        if formats.iter().any(|format| LOGS.contains(&format)) {
            return Ok(Fate::Goes);
        }
        // Apple's metadata tracks name all their keys.
        let keyed = !formats.is_empty() && formats.iter().all(|format| format == b"mebx");
        Ok(match &handler {
            kind if PICTURES_AND_SOUND.contains(&kind) => Fate::Stays,
            kind if TEXT.contains(&kind) => Fate::Captions,
            b"meta" if keyed && !names_place => Fate::Stays,
            _ => Fate::Goes,
        })
    }

    fn captions(&mut self, parts: &Parts, movie: &mut Movie) -> Result<()> {
        let ranges = self.samples(&parts.table, movie)?;
        let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        if total > TEXT_BYTES_MAX {
            return Err(RedactError::Unparsable("too much text"));
        }
        let mut text = Vec::new();
        for range in &ranges {
            text.extend(self.source.bytes(range.clone())?);
            // Chunks are not sentences.
            text.push(b'\n');
        }
        // Without zeros, text of two bytes a character reads like any other.
        text.retain(|byte| *byte != 0);
        if words::captions_log_place(&text) {
            ranges.into_iter().try_for_each(|range| movie.goes(range))?;
        }
        Ok(())
    }
}

/// The formats that a sample description names.
fn sample_formats(body: &[u8]) -> Result<Vec<[u8; 4]>> {
    let mut fields = Fields::new(body);
    fields.version()?;
    let entries = fields.number(4)?;
    let mut formats = Vec::new();
    for _ in 0..entries {
        let size = fields.number(4)?;
        let format = fields.take(4)?;
        formats.push([format[0], format[1], format[2], format[3]]);
        let rest = size
            .checked_sub(8)
            .and_then(|rest| usize::try_from(rest).ok());
        fields.take(rest.ok_or(RedactError::Unparsable("a sample description"))?)?;
    }
    Ok(formats)
}

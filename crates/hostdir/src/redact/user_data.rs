//! `udta` boxes: what makers put into films. There are dozens of kinds without a description, and
//! places in many, so only those stay that are known to be something else.

use super::boxes::BoxAt;
use super::movie::Movie;
use super::search::Search;
use super::{Result, words};

/// Texts: titles, names, dates, makes and models; and where windows stand.
const HARMLESS: [&[u8; 4]; 45] = [
    b"\xa9nam", b"\xa9ART", b"\xa9alb", b"\xa9day", b"\xa9mak", b"\xa9mod", b"\xa9swr", b"\xa9too",
    b"\xa9cpy", b"\xa9gen", b"\xa9wrt", b"\xa9fmt", b"\xa9inf", b"\xa9req", b"\xa9enc", b"\xa9cmt",
    b"\xa9des", b"\xa9dir", b"\xa9prd", b"\xa9prf", b"\xa9src", b"\xa9aut", b"\xa9grp", b"\xa9lyr",
    b"\xa9trk", b"name", b"cprt", b"titl", b"auth", b"perf", b"gnre", b"dscp", b"albm", b"yrrc",
    b"rtng", b"clsf", b"kywd", b"chpl", b"hnti", b"hinf", b"tagc", b"date", b"WLOC", b"SelO",
    b"AllF",
];
/// The longest text that is looked into.
const TEXT_BYTES_MAX: u64 = 64 << 10;

impl Search<'_> {
    /// A `udta` box.
    pub(super) fn user_data(&mut self, at: &BoxAt, movie: &mut Movie) -> Result<()> {
        for child in self.children(at.body.clone())? {
            match &child.kind {
                b"meta" => self.meta(&child, movie)?,
                kind if HARMLESS.contains(&kind) => self.user_text(&child)?,
                _ => self.common_or_empty(&child)?,
            }
        }
        Ok(())
    }

    fn user_text(&mut self, at: &BoxAt) -> Result<()> {
        let long = at.body.end - at.body.start > TEXT_BYTES_MAX;
        if long || words::fields_name_place(&self.source.bytes(at.body.clone())?) {
            return self.empty_box(at);
        }
        Ok(())
    }
}

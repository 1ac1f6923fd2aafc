//! Redaction: readers of a file do not see where it was taken.
//!
//! [`plan()`] scans a file's metadata by reads at offsets and returns which bytes readers must see
//! differently; [`RedactionPlan::apply`] patches what was read, at any offset. Sizes do not change, the
//! lower file is never written, and a file that is not understood is refused ([`RedactError::Unparsable`]),
//! never shown unredacted.
//!
//! | module | what it does |
//! |---|---|
//! | `plan` | sorted patches, and applying them |
//! | `source`, `extents`, `limits` | reading with a budget |
//! | `detect` | the container, by the first bytes |
//! | `search` | the state of one scan, shared by the walkers |
//! | `jpeg`, `trailer`, `png`, `webp` | walkers of still images |
//! | `boxes`, `heif`, `items` | walkers of HEIF |
//! | `tiff`, `exif`, `xmp`, `words` | metadata in the containers |
//! | `verify` | the second opinion |
//!
//! # Which parser, and why
//!
//! No maintained library says *where in the file* a tag is: `kamadak-exif`, `nom-exif`, `little_exif` and
//! `img-parts` return values, and those that write make another file of another size. So the structure of
//! containers, which is small, is walked here with checked arithmetic and bounds. `nom-exif` (MIT, no C,
//! all four containers, fuzzed by its authors) is the second opinion: it reads the file *through the plan*,
//! and if it still finds a place, the file counts as not understood. Two parsers must agree before a byte
//! is shown. The tests use a third one, `kamadak-exif`.
//!
//! # What is redacted, and how
//!
//! * A GPS directory is zeroed with its values, and the entry that points to it is removed from its table,
//!   so that a correct EXIF block without GPS remains.
//! * An XMP packet that may name a place is replaced as a whole by an empty one: properties can be written
//!   in many ways (attributes or elements, any prefix, extended packets in pieces). Other packets stay,
//!   because gain maps, motion photos and panoramas need them.
//! * What is of unknown kind (segments, chunks, boxes, items, properties, bytes behind the end of an image) is
//!   zeroed, or the file is refused if it could not be shown without it. So is the film of a motion photo.
//!
//! Films are refused: they name places in too many ways.
//!
//! `docs/redaction.md` is the users' reference, with the limits.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod boxes;
mod detect;
mod error;
mod exif;
mod extents;
mod heif;
mod items;
mod jpeg;
mod limits;
mod plan;
mod png;
mod search;
mod source;
#[cfg(test)]
mod tests;
mod tiff;
mod trailer;
mod verify;
mod webp;
mod words;
mod xmp;

pub use error::RedactError;
pub use plan::{Content, RedactionPlan};
pub use source::ReadAt;

use detect::Container;
use error::{Result, refuse};
use search::Search;

/// The result of a scan.
#[derive(Debug)]
pub enum Outcome {
    /// None of the known containers: nothing to redact.
    NotApplicable,
    /// Readers see the file through this plan; [`RedactionPlan::is_empty`] if it names no place.
    Plan(RedactionPlan),
}

/// Scans a file of `length` bytes for what has to be redacted.
///
/// The plan is void once the file has changed. Reads are bounded by `limits`: metadata by bytes read,
/// compressed image data (which has to be scanned for the end of a JPEG) by bytes scanned, in pieces.
/// Memory stays below 256 MiB in the worst case, and around the size of the metadata as a rule.
pub fn plan(reader: &ReadAt<'_>, length: u64) -> Result<Outcome> {
    let mut search = Search::new(reader, length);
    let Some(container) = detect::container(&mut search.source)? else {
        return Ok(Outcome::NotApplicable);
    };
    match container {
        Container::Jpeg => search.jpeg_file(0..length)?,
        Container::Png => search.png(0..length)?,
        Container::WebP => search.webp(0..length)?,
        Container::Heif => search.heif(0..length)?,
        Container::Film => return refuse("a film"),
    }
    let plan = search.edits.finish(length)?;
    verify::no_place_left(reader, length, container, &plan)?;
    Ok(Outcome::Plan(plan))
}

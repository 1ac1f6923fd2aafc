//! The second opinion: another parser reads the file through the plan, and must find no place.
//!
//! Its errors do not count: it knows other kinds of files than the walkers here, and what it refuses it
//! shows to no reader.

use super::detect::Container;
use super::error::{Result, refuse};
use super::limits::VERIFY_BYTES_MAX;
use super::plan::RedactionPlan;
use super::source::ReadAt;
use nom_exif::{IfdKind, MediaKind, MediaParser, MediaSource, TrackInfoTag};
use std::cell::Cell;
use std::io::{self, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tracing::subscriber::{NoSubscriber, with_default};

/// Refuses a plan through which a place can still be seen.
pub(super) fn no_place_left(
    reader: &ReadAt<'_>,
    length: u64,
    container: Container,
    plan: &RedactionPlan,
) -> Result<()> {
    let left = Cell::new(VERIFY_BYTES_MAX);
    let view = || View {
        reader,
        plan,
        length,
        at: 0,
        left: &left,
    };
    // A parser of untrusted bytes that panics must not end the server, nor may it fill the log.
    let found = catch_unwind(AssertUnwindSafe(|| {
        with_default(NoSubscriber::default(), || {
            // A film may lie behind a JPEG.
            let film = container == Container::Jpeg;
            image_names_place(view()) || film && film_names_place(view())
        })
    }));
    match found {
        Ok(false) if left.get() > 0 => Ok(()),
        Ok(false) => refuse("too much metadata to check"),
        Ok(true) => refuse("two parsers disagree"),
        Err(_) => refuse("a parser gave up"),
    }
}

fn image_names_place(view: View<'_>) -> bool {
    let Ok(source) = MediaSource::seekable(view) else {
        return false;
    };
    if source.kind() != MediaKind::Image {
        return false;
    }
    let Ok(mut entries) = MediaParser::new().parse_exif(source) else {
        return false;
    };
    matches!(entries.parse_gps(), Ok(Some(_))) || entries.any(|e| e.ifd_kind() == IfdKind::Gps)
}

fn film_names_place(view: View<'_>) -> bool {
    let Ok(source) = MediaSource::seekable(view) else {
        return false;
    };
    let Ok(track) = MediaParser::new().parse_track(source) else {
        return false;
    };
    let text = track.get(TrackInfoTag::GpsIso6709);
    let digits = |text: &str| text.bytes().any(|byte| byte.is_ascii_digit());
    track.gps_info().is_some() || text.and_then(|text| text.as_str()).is_some_and(digits)
}

/// The file through the plan, up to a number of bytes.
struct View<'a> {
    reader: &'a ReadAt<'a>,
    plan: &'a RedactionPlan,
    length: u64,
    at: u64,
    left: &'a Cell<u64>,
}

impl Read for View<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = self.length.saturating_sub(self.at).min(buffer.len() as u64);
        let Some(left) = self.left.get().checked_sub(room) else {
            self.left.set(0);
            return Err(io::ErrorKind::FileTooLarge.into());
        };
        let count = (self.reader)(&mut buffer[..room as usize], self.at)?;
        self.plan.apply(self.at, &mut buffer[..count]);
        self.left.set(left);
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for View<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.length.checked_add_signed(by),
        };
        self.at = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

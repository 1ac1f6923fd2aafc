//! The data path of an open file as a number, for another process.

use thrufs::Errno;
use thrufs_policy::{DataPath, FilePath, Redaction};

/// The data path of a file that was open in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) path: DataPath,
    pub(crate) redaction: Option<Redaction>,
    /// It may write to a file that other opens see redacted.
    pub(crate) writes: bool,
}

/// The number of a route: the path, above it the redacted kinds, above them the error for files that are
/// not understood.
const CACHED: u32 = 1;
const DIRECT: u32 = 2;
const FILTERED: u32 = 3;
const FILTERED_WRITER: u32 = 4;
const GPS: u32 = 1;
const KINDS_SHIFT: u32 = 8;
const ERRNO_SHIFT: u32 = 16;

impl Route {
    /// As a number, never 0.
    pub(crate) fn number(self) -> u32 {
        let path = match self.path {
            // Passthrough with one kernel can be cached with the next.
            DataPath::Passthrough | DataPath::Cached => CACHED,
            DataPath::Direct => DIRECT,
            DataPath::Filtered if self.writes => FILTERED_WRITER,
            DataPath::Filtered => FILTERED,
        };
        let redaction = self.redaction.map_or(0, |redaction| {
            let errno = redaction.errno.raw().cast_unsigned() & 0xffff;
            GPS << KINDS_SHIFT | errno << ERRNO_SHIFT
        });
        path | redaction
    }

    /// The inverse of [`number`](Self::number).
    pub(crate) fn from_number(number: u32) -> Option<Route> {
        let path = match number & ((1 << KINDS_SHIFT) - 1) {
            CACHED => DataPath::Cached,
            DIRECT => DataPath::Direct,
            FILTERED | FILTERED_WRITER => DataPath::Filtered,
            _ => return None,
        };
        let writes = number & ((1 << KINDS_SHIFT) - 1) == FILTERED_WRITER;
        if path != DataPath::Filtered {
            return (number >> KINDS_SHIFT == 0).then_some(Route {
                path,
                redaction: None,
                writes: false,
            });
        }
        if number >> KINDS_SHIFT & 0xff != GPS {
            return None;
        }
        let errno = match number >> ERRNO_SHIFT {
            0 => Errno::EACCES,
            errno => Errno::from_raw(errno.cast_signed()),
        };
        Some(Route {
            path,
            redaction: Some(Redaction {
                errno,
                // Opens may see what the file contains now, redacted.
                content: Default::default(),
            }),
            writes,
        })
    }

    /// Of an open file that other opens see redacted.
    pub(crate) fn redacted(redaction: Redaction, writes: bool) -> Route {
        Route {
            path: DataPath::Filtered,
            redaction: Some(redaction),
            writes,
        }
    }

    pub(crate) fn writes(self) -> bool {
        self.writes
    }

    pub(crate) fn wanted(self) -> FilePath {
        match (self.path, self.redaction) {
            (_, Some(redaction)) => FilePath::redacted(redaction, None),
            (DataPath::Direct, None) => FilePath::new(DataPath::Direct, None),
            (_, None) => FilePath::new(DataPath::Cached, None),
        }
    }
}

//! The data path of an open file as a number, for another process.

use serde::{Deserialize, Serialize};
use thrufs::Errno;
use thrufs_policy::{DataPath, FilePath, Redaction};

/// The data path of a file that was open in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "u32", try_from = "u32")]
pub(crate) struct Route {
    /// Without the rule.
    pub(crate) file: FilePath,
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

impl From<Route> for u32 {
    /// Never 0.
    fn from(route: Route) -> u32 {
        let path = match route.file.data {
            // Passthrough with one kernel can be cached with the next.
            DataPath::Passthrough | DataPath::Cached => CACHED,
            DataPath::Direct => DIRECT,
            DataPath::Filtered if route.writes => FILTERED_WRITER,
            DataPath::Filtered => FILTERED,
        };
        let redaction = route.file.redaction.map_or(0, |redaction| {
            let errno = redaction.errno.raw().cast_unsigned() & 0xffff;
            GPS << KINDS_SHIFT | errno << ERRNO_SHIFT
        });
        path | redaction
    }
}

impl TryFrom<u32> for Route {
    type Error = &'static str;

    fn try_from(number: u32) -> Result<Route, &'static str> {
        let unknown = Err("data go in an unknown way");
        let (path, kinds) = (number & 0xff, number >> KINDS_SHIFT & 0xff);
        let (file, writes) = match path {
            CACHED | DIRECT if number != path => return unknown,
            CACHED => (FilePath::new(DataPath::Cached, None), false),
            DIRECT => (FilePath::new(DataPath::Direct, None), false),
            FILTERED | FILTERED_WRITER if kinds == GPS => {
                let errno = match number >> ERRNO_SHIFT {
                    0 => Errno::EACCES,
                    errno => Errno::from_raw(errno.cast_signed()),
                };
                // Opens may see what the file contains now, redacted.
                let content = Default::default();
                let file = FilePath::redacted(Redaction { errno, content }, None);
                (file, path == FILTERED_WRITER)
            }
            _ => return unknown,
        };
        Ok(Route { file, writes })
    }
}

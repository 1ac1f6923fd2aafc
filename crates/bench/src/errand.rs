//! What a process of a measurement is sent to do, and what it has done.

use std::path::PathBuf;
use std::time::Duration;

/// A row, at one place.
pub(crate) struct Errand {
    /// A new directory beneath the mount, for what the row needs: nothing of it is cached above.
    pub(crate) beneath: PathBuf,
    /// Where the contestant shows it.
    pub(crate) seen: PathBuf,
    /// Work, in hundredths of the usual.
    pub(crate) percent: usize,
    /// After this long, loops of our own end, done or not.
    pub(crate) limit: Duration,
    /// Whether data that were read once lie above and are cheaper the second time: they are to be read once
    /// only.
    pub(crate) once: bool,
    /// Whether each operation is timed by itself, where the row can: not for rates.
    pub(crate) each: bool,
}

/// What was done.
pub(crate) struct Done {
    pub(crate) operations: u64,
    /// Nanoseconds of the monotonic clock.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Nanoseconds of each operation, if that was asked for and the row can.
    pub(crate) each: Vec<u64>,
}

//! The task of a measuring process (which row, where, how much) and its outcome, as they go between
//! processes.

use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A row, at one place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// A new directory beneath the mount, for what the row needs: nothing of it is cached above.
    pub beneath: PathBuf,
    /// Where the target shows it.
    pub seen: PathBuf,
    /// Work, in hundredths of the usual.
    pub percent: usize,
    /// After this long, loops of our own end, done or not.
    pub limit: Duration,
    /// Whether data that were read once lie above and are cheaper the second time: they are to be read once
    /// only.
    pub once: bool,
    /// Whether each operation is timed by itself, where the row can: not for rates.
    pub each: bool,
}

/// What was done.
#[derive(Serialize, Deserialize)]
pub struct Done {
    /// How many.
    pub operations: u64,
    /// Nanoseconds of the monotonic clock.
    pub start: u64,
    /// The same of its end.
    pub end: u64,
    /// Nanoseconds of each operation, if that was asked for and the row can.
    pub each: Vec<u64>,
}

/// Next to the directory of a measurement, beneath and where it is seen: what outlives the measurement
/// ([`kept`](crate::kept)).
const KEPT: &str = "kept";

impl Task {
    /// The directory beneath in which rows keep what the next measurement need not make again. It goes with
    /// the source at the end of the run.
    ///
    /// # Errors
    ///
    /// As of mkdir(2); there is none beside the root.
    pub fn kept_beneath(&self) -> io::Result<PathBuf> {
        let source = self.beneath.parent();
        let kept = source
            .ok_or_else(|| io::Error::other("a measurement in the root directory"))?
            .join(KEPT);
        match std::fs::create_dir(&kept) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(kept),
        }
    }

    /// Where the target shows [`kept_beneath`](Self::kept_beneath).
    pub fn kept_seen(&self) -> PathBuf {
        self.seen.with_file_name(KEPT)
    }
}

//! What a measuring process is to do, and what it has done.
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A row, at one place: what a measuring process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    /// A new directory beneath the mount, for what the row needs: nothing of it is cached above.
    pub(crate) beneath: PathBuf,
    /// Where the target shows it.
    pub(crate) seen: PathBuf,
    /// Which one it is of the processes that measure at once.
    pub(crate) job: u32,
    /// Work, in hundredths of the usual.
    pub(crate) percent: usize,
    /// After this long, loops end, done or not.
    pub(crate) limit: Duration,
    /// Whether data that were read once lie above and are cheaper the second time: they are to be read once
    /// only.
    pub(crate) once: bool,
}

/// What was done.
#[derive(Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) operations: u64,
    /// Nanoseconds of the monotonic clock.
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// What outlives a measurement lies next to its directory, beneath and where it is seen.
const KEPT: &str = "kept";

impl Task {
    /// What rows need and do not use up, big files and trees of small ones, is made once for a run and process: making
    /// it for every measurement would take longer than the measurements. Where it is, beneath and where the
    /// target shows it.
    pub(crate) fn kept(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<(PathBuf, PathBuf)> {
        let directory = format!("{KEPT}-{}", self.job);
        let beneath = self.beneath.with_file_name(&directory);
        let whole = beneath.join(name);
        std::fs::create_dir_all(&beneath)?;
        if std::fs::symlink_metadata(&whole).is_err() {
            // Under another name first: what has the right one is complete.
            let part = beneath.join(format!("part-{}", std::process::id()));
            make(&part)?;
            std::fs::rename(part, &whole)?;
        }
        Ok((whole, self.seen.with_file_name(directory).join(name)))
    }
}

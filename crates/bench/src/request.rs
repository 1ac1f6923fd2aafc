//! A request: what the command line asks for, in its words, not checked. [`plan`](crate::plan) checks it.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What `thrufs bench` was asked to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The directory that the question is about.
    pub directory: PathBuf,
    /// Whether the command line names it.
    pub directory_given: bool,
    /// Mounts of others to be compared with: a name, and where they are mounted.
    pub against: Vec<(String, PathBuf)>,
    /// Names of modes of ours; all there are, when it is empty.
    pub modes: Vec<String>,
    /// Values of `cache=` for each of them; the default mount alone, when it is empty.
    pub cache: Vec<String>,
    /// The name of the suite; [`suites`](crate::suites) has them.
    pub suite: String,
    /// Names of rows and groups, parted by commas, instead of the suite's.
    pub rows: Option<String>,
    /// Processes at once, instead of the suite's.
    pub jobs: Vec<u32>,
    /// Rounds, instead of as many as there is time for.
    pub rounds: Option<u32>,
    /// Seconds that all may take, instead of the suite's.
    pub seconds: Option<u32>,
    /// Work of a measurement, in hundredths of the usual.
    pub percent: Option<u32>,
    /// File systems that are made for the run, instead of the directory.
    pub lowers: Vec<String>,
    /// Where the report goes.
    pub out: Option<PathBuf>,
    /// The results of another run: what is found is shown beside them.
    pub repeats: Option<PathBuf>,
    /// The command line, word by word, to be kept beside the figures.
    pub command: Vec<String>,
}

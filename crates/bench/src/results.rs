//! What a run has found: the form in which it is kept (`results.json`), and from which every report is made.
//!
//! A run compares **targets** (the file system beneath by itself, mounts of it) in **rows** (a kind
//! of work). A **cell** is one row at one target by so many jobs; it has a sample for each round. What
//! counts is the ratio of two samples of one round, never a rate by itself: see [`statistics`].

mod reading;
pub mod statistics;

pub use reading::ReadError;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The form of these results. A reader of another refuses it.
pub const FORMAT: u32 = 1;

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`].
    pub format: u32,
    /// The name of the suite that was run.
    pub suite: String,
    /// The command line by which to repeat it, word by word.
    pub command: Vec<String>,
    /// When it began: seconds since 1970 (UTC).
    pub started: u64,
    /// How long it took.
    pub seconds: f64,
    /// How it ended.
    pub ending: Ending,
    /// Where it ran.
    pub machine: Machine,
    /// The targets, in the order in which they are to be shown; the first is what others are compared
    /// with.
    #[serde(rename = "contestants")]
    pub targets: Vec<Target>,
    /// What was measured, in the order in which it is to be shown.
    pub rows: Vec<RowInfo>,
    /// The figures.
    pub cells: Vec<Cell>,
    /// What else a reader has to know, each a sentence: what could not be measured and why, what was set up.
    pub remarks: Vec<String>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// Everything that was asked for was measured.
    Complete,
    /// It was stopped: what was measured until then stands.
    Interrupted,
}

/// Where a run took place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's release, as uname(2) has it.
    pub kernel: String,
    /// The processor's name.
    pub processor: String,
    /// Processors that this process may use.
    pub processors: u32,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Processes ready to run in the last minute, before the run.
    pub load_before: f64,
    /// What makes the machine one that other machines share: the hypervisor's name, if there is one.
    pub hypervisor: Option<String>,
    /// Versions of what took part, by name: `thrufs`, `fio`, `commit`.
    pub versions: BTreeMap<String, String>,
}

/// One that takes part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// A word without spaces: `native`, `ring+pt`.
    pub name: String,
    /// For people: `Thrufs over io_uring, passthrough`.
    pub title: String,
    /// What kind of one it is.
    pub kind: Kind,
    /// The options that it runs with, or where it is mounted: as one would write them.
    pub options: String,
    /// What its server (with its children) holds in memory after the run, in KiB.
    pub resident_kib: Option<u64>,
    /// Why it did not take part, if it did not.
    pub absent: Option<String>,
}

/// What kind of target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The file system beneath, without FUSE.
    Native,
    /// Thrufs.
    Ours,
    /// Another server.
    Other,
    /// A server that answers from constants: the price of the protocol.
    Floor,
}

/// A kind of work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowInfo {
    /// A word without spaces: `stat-cold`.
    pub name: String,
    /// For people: `stat, nothing cached`.
    pub title: String,
    /// A sentence or two: what one operation is, and what is cached.
    pub about: String,
    /// Under which heading it stands.
    pub group: Group,
    /// Bytes that one operation moves, where people want to read bytes per second; else 0.
    pub operation_bytes: u64,
    /// Whether people want to read seconds for one operation (a build) instead of a rate.
    pub in_seconds: bool,
    /// Whether nothing is cached when the clock starts.
    pub cold: bool,
    /// What does the work: `loop` for our own generators, `fio psync`, `make`.
    pub engine: String,
    /// The least rate that is aimed at, as a share of native's, for targets of ours.
    pub goal: Option<f64>,
}

/// Headings of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Reading and writing.
    Data,
    /// Names and attributes.
    Metadata,
    /// Whole programs.
    Programs,
}

/// One row at one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// [`RowInfo::name`].
    pub row: String,
    /// [`Target::name`].
    #[serde(rename = "contestant")]
    pub target: String,
    /// What lies beneath: the type of the file system (`ext4`), or a name of its own where a run has
    /// several.
    pub lower: String,
    /// Processes that worked at once.
    pub jobs: u32,
    /// One of each round in which it was measured, by rising number.
    pub samples: Vec<Sample>,
    /// Why there is no figure, or not in every round.
    pub absence: Option<Absence>,
    /// What an operation costs in requests and system calls.
    pub counts: Option<Counts>,
    /// How long single operations took.
    pub latency: Option<Latency>,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The round, from 0. Samples of one round belong together.
    pub round: u32,
    /// What all jobs did together.
    pub operations: u64,
    /// From the first job's start to the last one's end.
    pub nanoseconds: u64,
}

/// Why a cell has no figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absence {
    /// Whether it should have had one: something failed.
    pub failed: bool,
    /// For people.
    pub why: String,
}

/// What was counted in a measurement of its own, which is not timed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Operations in which the following was counted.
    pub operations: u64,
    /// Requests from the kernel to the server, by the name of the opcode; none where they could not be
    /// counted.
    pub requests: Option<BTreeMap<String, u64>>,
    /// System calls of the server.
    pub system_calls: Option<u64>,
}

/// How long single operations took, in a measurement of its own: reading the clock twice for each
/// makes all of them slower.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Operations that were looked at.
    pub operations: u64,
    /// Pairs of thousandths of the operations and of nanoseconds within which they were done, rising in
    /// both: `(500, 810)` says that half took no more than 810 ns. The last is `(1000, the longest)`.
    pub within: Vec<(u32, u64)>,
}

impl Results {
    /// The cell of a row at a target.
    #[must_use]
    pub fn cell(&self, row: &str, target: &str, lower: &str, jobs: u32) -> Option<&Cell> {
        self.cells.iter().find(|cell| {
            (cell.row.as_str(), cell.target.as_str()) == (row, target)
                && (cell.lower.as_str(), cell.jobs) == (lower, jobs)
        })
    }
}

impl Cell {
    /// The sample of the same round as this one.
    #[must_use]
    pub fn of_round(&self, sample: &Sample) -> Option<&Sample> {
        let mut all = self.samples.iter();
        all.find(|other| other.round == sample.round)
    }
}

impl Sample {
    /// Operations in a second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.operations as f64 * 1e9 / self.nanoseconds as f64
    }
}

//! What a run has found: the form in which it is kept (`results.json`), and from which every report is made.
//!
//! A run compares **targets** (the directory by itself, mounts of it) in **rows** (a kind of work). A **cell** is one
//! row at one target by so many processes; it has a sample for each round. What counts is the ratio of two samples
//! of one round, never a rate by itself: see [`statistics`].

pub(crate) mod statistics;

use crate::outcome::Outcome;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The form of these results. A reader of another refuses it.
pub(crate) const FORMAT: u32 = 1;

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) format: u32,
    /// The command line, word by word.
    pub(crate) command: Vec<String>,
    /// When it began: seconds since 1970 (UTC).
    pub(crate) started: u64,
    /// How long it took.
    pub(crate) seconds: f64,
    /// Work of a measurement, in hundredths of the usual.
    #[serde(default)]
    pub(crate) percent: u32,
    pub(crate) ending: Ending,
    pub(crate) machine: Machine,
    /// In the order in which they are to be shown; the first is what others are compared with.
    #[serde(rename = "contestants")]
    pub(crate) targets: Vec<Target>,
    pub(crate) cells: Vec<Cell>,
    /// What else a reader has to know, each a sentence.
    pub(crate) remarks: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ending {
    Complete,
    /// It was stopped: what was measured until then stands.
    Interrupted,
}

/// Where a run took place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The release, as uname(2) has it.
    pub(crate) kernel: String,
    pub(crate) processor: String,
    /// Those that this process may use.
    pub(crate) processors: u32,
    pub(crate) memory_bytes: u64,
    /// Of what took part, by name: `thrufs`, `commit`.
    pub(crate) versions: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Target {
    /// A word without spaces: `native`, `ring+pt`.
    pub(crate) name: String,
    /// How it is mounted, or where: for people.
    pub(crate) options: String,
    /// Why it did not take part, if it did not.
    pub(crate) absent: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) row: String,
    #[serde(rename = "contestant")]
    pub(crate) target: String,
    /// The type of the file system beneath: `ext4`.
    pub(crate) lower: String,
    /// Processes that worked at once.
    pub(crate) jobs: u32,
    /// One of each round in which it was measured, by rising number.
    pub(crate) samples: Vec<Sample>,
    /// Why there is no figure, or not in every round.
    pub(crate) absence: Option<Absence>,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// From 0. Samples of one round belong together.
    pub(crate) round: u32,
    /// What all processes did together.
    pub(crate) operations: u64,
    /// From the first one's start to the last one's end.
    pub(crate) nanoseconds: u64,
}

/// Why a cell has no figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Absence {
    /// Whether it should have had one: something failed.
    pub(crate) failed: bool,
    /// For people.
    pub(crate) why: String,
}

impl Results {
    /// The cell of a row at a target.
    pub(crate) fn cell(&self, row: &str, target: &str, jobs: u32) -> Option<&Cell> {
        let mut cells = self.cells.iter();
        cells.find(|cell| (&*cell.row, &*cell.target, cell.jobs) == (row, target, jobs))
    }

    /// What lies beneath.
    pub(crate) fn lower(&self) -> &str {
        self.cells.first().map_or("", |cell| &cell.lower)
    }

    /// Reads what a run has left.
    pub(crate) fn read(path: &Path) -> Outcome<Results> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
        let results: Results = serde_json::from_str(&text)
            .map_err(|error| format!("{shown}: not results of `thrufs bench`: {error}"))?;
        match results.format {
            FORMAT => Ok(results),
            other => Err(format!(
                "{shown}: results of form {other}, and this program reads {FORMAT}"
            )),
        }
    }
}

impl Absence {
    /// Something failed.
    pub(crate) fn failure(why: &str) -> Absence {
        let (failed, why) = (true, why.to_owned());
        Absence { failed, why }
    }
}

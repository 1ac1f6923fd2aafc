//! A published measurement beside ours: what `--suite published` is about.
//!
//! Another machine, kernel and year stand behind each original, so that its rates say nothing about ours.
//! What can be compared is the ratio of two of its columns with the ratio of ours: both are kept.

use super::statistics::Middle;
use serde::{Deserialize, Serialize};

/// One published comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// A word without spaces.
    pub name: String,
    /// For people.
    pub title: String,
    /// Where the original's figures stand.
    pub sources: Vec<Source>,
    /// What the original was measured on, and how.
    pub original: String,
    /// What was different here, each a sentence.
    pub differences: Vec<String>,
    /// What is compared with each other; ratios are those to the first.
    pub columns: Vec<Column>,
    /// The figures.
    pub lines: Vec<Line>,
    /// What could not be measured here, and why, each a sentence.
    pub missing: Vec<String>,
}

/// Where something was published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Who wrote it.
    pub author: String,
    /// What it is called.
    pub title: String,
    /// When: year-month-day.
    pub date: String,
    /// An address, or the identifier of a message.
    pub place: String,
}

/// One of those that were compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// What the original calls it.
    pub original: String,
    /// Which contestant of ours stands for it; none where nobody does.
    pub here: Option<String>,
    /// Why nobody does, in a word or two: `not served`.
    pub absent: String,
}

/// One thing that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// For people: `random read, 4 KiB`.
    pub what: String,
    /// Processes at once.
    pub jobs: u32,
    /// What the figures are.
    pub unit: Unit,
    /// For each column, in their order.
    pub pairs: Vec<Pair>,
}

/// What figures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// 2^20 bytes in a second.
    MibPerSecond,
    /// 10^6 bytes in a second.
    MbPerSecond,
    /// Operations in a second.
    PerSecond,
    /// Seconds for all of it: less is better.
    Seconds,
}

/// The original's figure and ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// As published; none where the original has none.
    pub original: Option<f64>,
    /// How many times as fast as the first column the original's is.
    pub original_ratio: Option<f64>,
    /// Ours: the median of the rounds.
    pub here: Option<f64>,
    /// How many times as fast as the first column ours is: the median of the rounds' ratios.
    pub here_ratio: Option<f64>,
    /// The ends of that ratio's interval.
    pub here_interval: Option<[f64; 2]>,
}

impl Column {
    /// Who stands for it here, or why nobody does.
    #[must_use]
    pub fn name_here(&self) -> &str {
        let absent = match self.absent.as_str() {
            "" => "-",
            absent => absent,
        };
        self.here.as_deref().unwrap_or(absent)
    }
}

impl Pair {
    /// Sets ours to the first column's.
    pub(crate) fn ratio_is(&mut self, ratio: Option<Middle>) {
        self.here_ratio = ratio.map(|ratio| ratio.median);
        self.here_interval = ratio.map(|ratio| [ratio.least, ratio.greatest]);
    }
}

impl Unit {
    /// From operations in a second, of so many bytes each.
    #[must_use]
    pub fn of(self, per_second: f64, operation_bytes: u64) -> f64 {
        match self {
            Unit::MibPerSecond => per_second * operation_bytes as f64 / f64::from(1 << 20),
            Unit::MbPerSecond => per_second * operation_bytes as f64 / 1e6,
            Unit::PerSecond => per_second,
            Unit::Seconds => 1.0 / per_second,
        }
    }

    /// How many times as fast one is as another.
    #[must_use]
    pub fn ratio(self, one: f64, other: f64) -> f64 {
        match self {
            Unit::Seconds => other / one,
            _ => one / other,
        }
    }

    /// For people.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Unit::MibPerSecond => "MiB/s",
            Unit::MbPerSecond => "MB/s",
            Unit::PerSecond => "/s",
            Unit::Seconds => "s",
        }
    }
}

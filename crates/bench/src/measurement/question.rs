//! What a measurement is asked, and what can come of it.

use crate::results::{Absence, Counts, Latency, Sample};
use std::time::Duration;

/// What a measurement is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// How long all operations take together.
    Rate,
    /// How long each of them takes.
    Latency,
    /// What they cost in requests and system calls.
    Counts,
}

/// What came of a measurement.
pub(crate) enum Measured {
    Sample(Sample),
    Latency(Latency),
    Counts(Counts),
    /// There is no figure, and why.
    Absent(Absence),
    /// The run is to end.
    Stopped,
}

/// How often and how much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Amount {
    pub(crate) question: Question,
    /// Processes at once.
    pub(crate) jobs: u32,
    /// Which round it is.
    pub(crate) round: u32,
    /// Work of each process, in hundredths of the usual.
    pub(crate) percent: usize,
    /// After this long, loops of our own end.
    pub(crate) limit: Duration,
    /// How long a process may take to be ready, or to be done.
    pub(crate) patience: Duration,
}

pub(super) fn absent(failed: bool, why: &str) -> Measured {
    Measured::Absent(Absence {
        failed,
        why: why.to_owned(),
    })
}

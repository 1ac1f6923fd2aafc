//! What was done, and in which time.

use super::row::Row;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) operations: u64,
    pub(super) nanoseconds: u64,
}

impl Sample {
    pub(super) fn per_second(self) -> f64 {
        self.operations as f64 * 1e9 / self.nanoseconds.max(1) as f64
    }
}

/// The samples of a target in a row.
pub(super) struct Series {
    pub(super) row: &'static Row,
    pub(super) target: usize,
    pub(super) samples: Vec<Sample>,
}

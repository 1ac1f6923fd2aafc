//! What `cargo xtask bench --shares` keeps: a share of ours beside one of virtiofsd, at their sockets.

use serde::Deserialize;
use std::path::Path;
use thrufs_bench::results::Sample;
use thrufs_bench::results::statistics::Middle;

/// A run.
#[derive(Deserialize)]
pub(super) struct Shares {
    request_queues_max: u32,
    series: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    row: String,
    #[serde(rename = "contestant")]
    target: String,
    /// One of each round.
    operations_and_nanoseconds: Vec<(u64, u64)>,
}

impl Shares {
    /// Of one queue, on tmpfs; none of anything else.
    pub(super) fn read(path: &Path) -> Option<Shares> {
        let is_tmpfs = path.file_stem()?.to_str()?.contains("tmpfs");
        let text = std::fs::read_to_string(path).ok()?;
        let shares: Shares = serde_json::from_str(&text).ok()?;
        (is_tmpfs && shares.request_queues_max == 1).then_some(shares)
    }

    /// How many times virtiofsd's rate, in this row.
    pub(super) fn ratio(&self, row: &str) -> Option<Middle> {
        let of = |target: &str| {
            let mut all = self.series.iter();
            all.find(|one| one.row == row && one.target == target)
        };
        let rate = |&(operations, nanoseconds): &(u64, u64)| {
            let round = 0;
            Sample {
                round,
                operations,
                nanoseconds,
            }
            .per_second()
        };
        let ours = of("thrufs")?.operations_and_nanoseconds.iter();
        let theirs = of("virtiofsd")?.operations_and_nanoseconds.iter();
        Middle::of(
            ours.zip(theirs)
                .map(|(ours, theirs)| rate(ours) / rate(theirs))
                .collect(),
        )
    }
}

//! Results of `cargo xtask bench --shares`: `thrufs share` beside virtiofsd, driven at their sockets.

use super::markdown::{Grid, marked_if_slower, with_interval};
use serde::Deserialize;
use std::path::Path;
use thrufs_bench::Outcome;
use thrufs_bench::report::table::each;
use thrufs_bench::results::Sample;
use thrufs_bench::results::statistics::Middle;

/// Rates of larger operations are in bytes per second.
const COUNTED_BYTES_MAX: u64 = 4096;

#[derive(Deserialize)]
pub(super) struct Shares {
    request_queues_max: u32,
    series: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    row: String,
    #[serde(rename = "contestant")]
    server: String,
    /// Of one operation; 0 for metadata.
    bytes: u64,
    /// One pair for each round.
    operations_and_nanoseconds: Vec<(u64, u64)>,
}

/// The rates of both servers, and the ratio of the rounds.
pub(super) fn table(path: &Path) -> Outcome<String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let shares: Shares = serde_json::from_str(&text).map_err(|error| failed(&error))?;
    let mut grid =
        Grid::new(&["row", "thrufs", "virtiofsd", "thrufs / virtiofsd"].map(str::to_owned));
    for row in each(shares.series.iter().map(|one| one.row.as_str())) {
        let of = |server| shares.series(row, server).and_then(Series::rate);
        let (Some(ours), Some(theirs), Some(ratio)) =
            (of("thrufs"), of("virtiofsd"), shares.ratio(row))
        else {
            return Err(format!("{}: {row} has no ratio", path.display()));
        };
        let ratio = marked_if_slower(&with_interval(&ratio), &ratio);
        grid.line(&[row.to_owned(), ours, theirs, ratio]);
    }
    Ok(grid.into_text())
}

impl Shares {
    /// A run with one queue on tmpfs; None for any other file.
    pub(super) fn read(path: &Path) -> Option<Shares> {
        let is_tmpfs = path.file_stem()?.to_str()?.contains("tmpfs");
        let text = std::fs::read_to_string(path).ok()?;
        let shares: Shares = serde_json::from_str(&text).ok()?;
        (is_tmpfs && shares.request_queues_max == 1).then_some(shares)
    }

    fn series(&self, row: &str, server: &str) -> Option<&Series> {
        let mut all = self.series.iter();
        all.find(|one| one.row == row && one.server == server)
    }

    /// Ours to virtiofsd's rate.
    pub(super) fn ratio(&self, row: &str) -> Option<Middle> {
        let ours = self.series(row, "thrufs")?.per_second();
        let theirs = self.series(row, "virtiofsd")?.per_second();
        Middle::of(
            ours.zip(theirs)
                .map(|(ours, theirs)| ours / theirs)
                .collect(),
        )
    }
}

impl Series {
    fn per_second(&self) -> impl Iterator<Item = f64> {
        let rounds = self.operations_and_nanoseconds.iter();
        rounds.map(|&(operations, nanoseconds)| {
            let round = 0;
            Sample {
                round,
                operations,
                nanoseconds,
            }
            .per_second()
        })
    }

    /// The median, formatted.
    fn rate(&self) -> Option<String> {
        let median = Middle::of(self.per_second().collect())?.median;
        Some(match self.bytes {
            ..=COUNTED_BYTES_MAX => format!("{:.1} k/s", median / 1e3),
            bytes => format!("{:.0} MB/s", median * bytes as f64 / 1e6),
        })
    }
}

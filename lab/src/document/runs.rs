//! Results of `cargo xtask bench --runs`: programs in `thrufs run` beside the same without.

use super::markdown::{Grid, with_interval};
use serde::Deserialize;
use std::path::Path;
use thrufs_bench::Outcome;
use thrufs_bench::report::table::each;
use thrufs_bench::results::statistics::Middle;

#[derive(Deserialize)]
struct Runs {
    series: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    row: String,
    lower: String,
    user: String,
    /// Of each round: without, and in `thrufs run`.
    seconds: Vec<(f64, f64)>,
}

/// Times, and the ratios of times of the rounds.
pub(super) fn table(path: &Path) -> Outcome<String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let runs: Runs = serde_json::from_str(&text).map_err(|error| failed(&error))?;
    let head = [
        "row",
        "below",
        "user",
        "without",
        "`thrufs run`",
        "`thrufs run` / without",
    ];
    let mut grid = Grid::new(&head.map(str::to_owned));
    for row in each(runs.series.iter().map(|one| one.row.as_str())) {
        for one in runs.series.iter().filter(|one| one.row == row) {
            let cells = one.cells();
            let cells = cells.ok_or_else(|| failed(&format!("{row} has no rounds")))?;
            grid.line(&cells);
        }
    }
    Ok(grid.into_text())
}

impl Series {
    fn cells(&self) -> Option<[String; 6]> {
        let middle = |of: fn(&(f64, f64)) -> f64| Middle::of(self.seconds.iter().map(of).collect());
        let time = |middle: Middle| format!("{:.0} ms", middle.median * 1e3);
        Some([
            self.row.clone(),
            self.lower.clone(),
            self.user.clone(),
            time(middle(|it| it.0)?),
            time(middle(|it| it.1)?),
            with_interval(&middle(|it| it.1 / it.0)?),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn table_has_times_and_the_ratio_of_rounds() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a-runs.json");
        let series = |rounds: &str| {
            format!(
                r#"{{"kind": "runs", "series": [
                    {{"row": "make", "lower": "ext4", "user": "root", "seconds": [{rounds}]}}
                ]}}"#
            )
        };
        std::fs::write(&file, series("[1.0, 1.5], [2.0, 2.2], [4.0, 4.8]")).unwrap();
        let made = table(&file).unwrap();
        let line = "| make | ext4 | root | 2000 ms | 2200 ms | 1.200 [1.100 to 1.500] |\n";
        assert!(made.ends_with(line), "{made}");
        std::fs::write(&file, series("")).unwrap();
        assert!(table(&file).unwrap_err().contains("make has no rounds"));
    }
}

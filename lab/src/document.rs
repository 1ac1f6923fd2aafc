//! Tables of documents, made from committed results: what stands between
//!
//! ```text
//! <!-- bench: FILE.json SUITE/TABLE [lower=ext4] [jobs=1] [rows=A,B] [targets=A,B] [group=data] -->
//! <!-- end -->
//! ```
//!
//! is replaced by the table of `FILE.json`, which must be of that suite. `FILE.json shares/ratios` reads a run of
//! `--shares`, `FILE.json runs/ratios` one of `--runs`, and `*.json all/goals` is the table of the project's goals,
//! from all results.

mod derived;
mod goals;
mod list;
mod markdown;
mod memory;
mod runs;
mod shares;

#[cfg(test)]
pub(crate) use list::of_mounts as goals_of_mounts;

use std::path::Path;
use thrufs_bench::Outcome;
use thrufs_bench::results::{Results, RowInfo};

const BEGIN: &str = "<!-- bench: ";
const CLOSE: &str = " -->";
const END: &str = "<!-- end -->";
const ALL: &str = "*.json";
/// Results of `cargo xtask bench --shares`, which have a form of their own.
const SHARES: &str = "shares";
/// The same of `--runs`.
const RUNS: &str = "runs";

/// `document RESULTS DOCUMENT...`: replaces the tables of these documents.
pub(crate) fn document(arguments: &[String]) -> Outcome<()> {
    let [results, documents @ ..] = arguments else {
        return Err("document RESULTS DOCUMENT...".to_owned());
    };
    for document in documents {
        let failed = |error: std::io::Error| format!("{document}: {error}");
        let text = std::fs::read_to_string(document).map_err(failed)?;
        let made =
            with_tables(&text, Path::new(results)).map_err(|why| format!("{document}: {why}"))?;
        if made != text {
            std::fs::write(document, made).map_err(failed)?;
        }
    }
    Ok(())
}

/// The text, with its tables made from the results in that directory.
pub(crate) fn with_tables(text: &str, results: &Path) -> Outcome<String> {
    let mut made = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        made += line;
        made.push('\n');
        let marker = line
            .strip_prefix(BEGIN)
            .and_then(|line| line.strip_suffix(CLOSE));
        let Some(marker) = marker else { continue };
        if !lines.by_ref().any(|line| line == END) {
            return Err(format!("{line}: it has no {END}"));
        }
        let table = Marker::parse(marker)
            .and_then(|marker| marker.table(results))
            .map_err(|why| format!("{line}: {why}"))?;
        made += &format!("\n{table}\n{END}\n");
    }
    Ok(made)
}

struct Marker {
    file: String,
    suite: String,
    table: String,
    choice: Choice,
}

/// Which part of the results; all of it where nothing is named.
#[derive(Default)]
struct Choice {
    lower: Option<String>,
    jobs: Option<u32>,
    group: Option<String>,
    rows: Vec<String>,
    targets: Vec<String>,
}

impl Marker {
    fn parse(text: &str) -> Outcome<Marker> {
        let mut words = text.split_whitespace();
        let (Some(file), Some(table)) = (words.next(), words.next()) else {
            return Err("FILE.json SUITE/TABLE is wanted".to_owned());
        };
        let table = table.split_once('/');
        let (suite, table) = table.ok_or("SUITE/TABLE is wanted".to_owned())?;
        let mut choice = Choice::default();
        for word in words {
            let (key, value) = word.split_once('=').ok_or(format!("{word}?"))?;
            let all = || value.split(',').map(str::to_owned).collect();
            match key {
                "lower" => choice.lower = Some(value.to_owned()),
                "jobs" => choice.jobs = Some(value.parse().map_err(|_| format!("{word}?"))?),
                "group" => choice.group = Some(value.to_owned()),
                "rows" => choice.rows = all(),
                "targets" => choice.targets = all(),
                _ => return Err(format!("{word}?")),
            }
        }
        Ok(Marker {
            file: file.to_owned(),
            suite: suite.to_owned(),
            table: table.to_owned(),
            choice,
        })
    }

    fn table(&self, directory: &Path) -> Outcome<String> {
        if (self.file.as_str(), self.suite.as_str(), self.table.as_str()) == (ALL, "all", "goals") {
            return goals::table(directory);
        }
        if (self.suite.as_str(), self.table.as_str()) == (SHARES, "ratios") {
            return shares::table(&directory.join(&self.file));
        }
        if (self.suite.as_str(), self.table.as_str()) == (RUNS, "ratios") {
            return runs::table(&directory.join(&self.file));
        }
        let mut results = self.results(directory)?;
        self.choice.apply(&mut results)?;
        let text = markdown::named(&self.table)?(&results);
        if text.is_empty() {
            return Err("there is nothing to show".to_owned());
        }
        Ok(text)
    }

    fn results(&self, directory: &Path) -> Outcome<Results> {
        let results =
            Results::read(&directory.join(&self.file)).map_err(|error| error.to_string())?;
        if results.suite != self.suite {
            return Err(format!("{} is of the suite {}", self.file, results.suite));
        }
        Ok(results)
    }
}

impl Choice {
    /// Keeps the part that is named, and the first target (native), which ratios are against.
    fn apply(&self, results: &mut Results) -> Outcome<()> {
        for name in &self.rows {
            if !results.rows.iter().any(|row| row.name == *name) {
                return Err(format!("there is no row {name}"));
            }
        }
        for name in &self.targets {
            if !results.targets.iter().any(|one| one.name == *name) {
                return Err(format!("there is no target {name}"));
            }
        }
        let group = |row: &RowInfo| serde_json::to_value(row.group).ok();
        results.rows.retain(|row| {
            let of_group = self.group.as_ref().is_none_or(|wanted| {
                group(row).is_some_and(|group| group.as_str() == Some(wanted))
            });
            of_group && (self.rows.is_empty() || self.rows.contains(&row.name))
        });
        let base = results.targets.first().map(|base| base.name.clone());
        results.targets.retain(|one| {
            self.targets.is_empty()
                || base.as_ref() == Some(&one.name)
                || self.targets.contains(&one.name)
        });
        let (rows, targets) = (&results.rows, &results.targets);
        results.cells.retain(|cell| {
            self.lower.as_ref().is_none_or(|lower| *lower == cell.lower)
                && self.jobs.is_none_or(|jobs| jobs == cell.jobs)
                && rows.iter().any(|row| row.name == cell.row)
                && targets.iter().any(|one| one.name == cell.target)
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;

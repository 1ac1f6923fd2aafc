//! Published measurements that this project answers to: the original's figures, and which of our rows and
//! contestants stand for them. `--suite published` measures those; [`beside`] puts both side by side.
//!
//! | file | the original |
//! |---|---|
//! | `passthrough` | FUSE passthrough against FUSE against native (Balsini, 2021) |
//! | `ring` | FUSE over io_uring against `/dev/fuse` (Schubert, 2024) |
//! | `killpriv` | small writes without asking for capabilities each time (Goyal, 2020) |
//! | `close` | synchronous close (Guzik, 2023) |
//! | `virtiofs` | virtio-fs against 9p against DAX, in a guest (Goyal, 2020) |
//!
//! The last, and what `close` has to say of kernels from before the change, are measured in guests, by
//! `cargo xtask vm-bench`: `cargo xtask bench --suite published` adds what that finds to the results.

mod close;
mod guest;
mod html;
mod killpriv;
mod passthrough;
mod ring;
mod terminal;
mod virtiofs;

pub use close::environment;
pub(crate) use guest::{kernels, setting};
pub use html::{STYLE, html};
pub(crate) use terminal::number;
pub use terminal::terminal;

use crate::Outcome;
use crate::results::published::{Column, Line, Pair, Published, Source, Unit};
use crate::results::{Cell, Results, statistics};

/// What every report compares with.
const NATIVE: &str = "native";
/// The suite's name.
pub const SUITE: &str = "published";

/// A published comparison, as it is written down here.
struct Original {
    name: &'static str,
    title: &'static str,
    sources: &'static [Written],
    /// What it was measured on, and how.
    setting: &'static str,
    differences: &'static [&'static str],
    columns: &'static [Place],
    lines: &'static [Told],
}

/// A [`Source`].
struct Written {
    author: &'static str,
    title: &'static str,
    date: &'static str,
    place: &'static str,
}

/// A [`Column`].
struct Place {
    original: &'static str,
    /// The contestant; empty where there is none.
    here: &'static str,
    /// What is appended to the name of the row in this column.
    variant: &'static str,
    /// Why nobody stands for it, where nobody does.
    absent: &'static str,
}

/// What was measured by so many processes at once.
struct Told {
    what: &'static str,
    /// The row of ours.
    row: &'static str,
    jobs: u32,
    unit: Unit,
    /// For each column. What was not published is [`NOT_PUBLISHED`].
    values: &'static [f64],
}

/// In place of a figure that the original does not have.
const NOT_PUBLISHED: f64 = f64::NAN;

const fn place(original: &'static str, here: &'static str) -> Place {
    Place {
        original,
        here,
        variant: "",
        absent: "",
    }
}

/// A column of the original for which there is nobody here.
const fn nobody(original: &'static str, absent: &'static str) -> Place {
    Place {
        original,
        here: "",
        variant: "",
        absent,
    }
}

const fn told(
    what: &'static str,
    row: &'static str,
    jobs: u32,
    unit: Unit,
    values: &'static [f64],
) -> Told {
    Told {
        what,
        row,
        jobs,
        unit,
        values,
    }
}

/// Those that a directory is enough for.
const MEASURED: [&Original; 4] = [
    &passthrough::ORIGINAL,
    &ring::ORIGINAL,
    &killpriv::ORIGINAL,
    &close::ORIGINAL,
];

/// The rows that `--suite published` needs, by name, each once.
#[must_use]
pub fn rows() -> Vec<String> {
    let mut rows = Vec::new();
    for original in MEASURED {
        for line in original.lines {
            for column in original.columns {
                let row = format!("{}{}", line.row, column.variant);
                if !rows.contains(&row) && !column.here.is_empty() {
                    rows.push(row);
                }
            }
        }
    }
    rows
}

/// Whether the suite has anything to say about a row at a contestant by so many processes: the others need
/// not be measured.
#[must_use]
pub fn asks(row: &str, contestant: &str, jobs: u32) -> bool {
    let asked = |original: &Original, line: &Told, column: &Place| {
        let named = row
            .strip_prefix(line.row)
            .is_some_and(|rest| rest == column.variant);
        let compared =
            contestant == column.here || contestant == NATIVE || also(original, contestant);
        named && compared && line.jobs == jobs
    };
    MEASURED.iter().any(|original| {
        let lines = original.lines.iter();
        let mut pairs =
            lines.flat_map(|line| original.columns.iter().map(move |column| (line, column)));
        pairs.any(|(line, column)| asked(original, line, column))
    })
}

/// Contestants that stand for none of the original's and are of interest all the same: what the price of
/// FUSE is where only that is asked.
fn also(original: &Original, contestant: &str) -> bool {
    match original.name {
        "close" => ["dev+pt", "ring+pt"].contains(&contestant),
        "passthrough" => contestant == "ring+pt",
        _ => false,
    }
}

/// The order in which comparisons are shown.
const ORDER: [&str; 6] = [
    "passthrough",
    "virtiofs",
    "ring",
    "killpriv",
    "close",
    "close-guest",
];

/// What a report shows: all comparisons, with what the run has found, if it was about them.
#[must_use]
pub fn of(results: &Results) -> Vec<Published> {
    if results.suite == SUITE {
        beside(results)
    } else {
        Vec::new()
    }
}

/// All comparisons, with what a run has found for them, in guests as well. Of a run in guests alone, only
/// theirs.
#[must_use]
pub fn beside(results: &Results) -> Vec<Published> {
    let mut all = guest::beside(&results.guests);
    if all.is_empty() || !results.cells.is_empty() {
        all.extend(MEASURED.iter().map(|original| original.beside(results)));
    }
    all.sort_by_key(|one| ORDER.iter().position(|name| *name == one.name));
    all
}

/// The comparison of that name, with what a run of any suite has found for it; none where it has found nothing.
///
/// # Errors
///
/// A name that is no comparison's.
pub(crate) fn named(results: &Results, name: &str) -> Outcome<Option<Published>> {
    if !ORDER.contains(&name) {
        let names = ORDER.join(", ");
        return Err(format!("there is no comparison {name}; there are {names}"));
    }
    let found = |line: &Line| line.pairs.iter().any(|pair| pair.here.is_some());
    let mut all = beside(results).into_iter();
    Ok(all.find(|one| one.name == name && one.lines.iter().any(found)))
}

impl Original {
    fn beside(&self, results: &Results) -> Published {
        let mut published = self.alone();
        for (line, told) in published.lines.iter_mut().zip(self.lines) {
            let cells: Vec<Option<&Cell>> = self
                .columns
                .iter()
                .map(|column| found(results, column, told))
                .collect();
            let bytes = |row: &str| {
                let mut rows = results.rows.iter();
                rows.find(|known| known.name == row)
                    .map_or(0, |known| known.operation_bytes)
            };
            for (pair, cell) in line.pairs.iter_mut().zip(&cells) {
                let Some(cell) = cell else { continue };
                let rate = statistics::rate(cell);
                pair.here = rate.map(|rate| told.unit.of(rate.median, bytes(&cell.row)));
                let ratio = cells[0].and_then(|base| statistics::ratio(cell, base));
                pair.ratio_is(ratio);
            }
        }
        published.missing = self.missing(results, &published);
        published
    }

    /// The original, and nothing of ours yet.
    fn alone(&self) -> Published {
        let owned = str::to_owned;
        let sources = self.sources.iter().map(|source| Source {
            author: owned(source.author),
            title: owned(source.title),
            date: owned(source.date),
            place: owned(source.place),
        });
        let columns = self.columns.iter().map(|column| Column {
            original: owned(column.original),
            here: (!column.here.is_empty()).then(|| owned(column.here)),
            absent: owned(column.absent),
        });
        let lines = self.lines.iter().map(|told| Line {
            what: owned(told.what),
            jobs: told.jobs,
            unit: told.unit,
            pairs: told.pairs(),
        });
        Published {
            name: owned(self.name),
            title: owned(self.title),
            sources: sources.collect(),
            original: owned(self.setting),
            differences: self.differences.iter().map(|text| owned(text)).collect(),
            columns: columns.collect(),
            lines: lines.collect(),
            missing: Vec::new(),
        }
    }

    /// Why cells have no figure of ours, each reason once.
    fn missing(&self, results: &Results, published: &Published) -> Vec<String> {
        let mut reasons: Vec<String> = Vec::new();
        let mut jobs_missing: Vec<u32> = Vec::new();
        for (line, told) in published.lines.iter().zip(self.lines) {
            for (pair, column) in line.pairs.iter().zip(self.columns) {
                if pair.here.is_some() || column.here.is_empty() {
                    continue;
                }
                let Some(cell) = found(results, column, told) else {
                    if !jobs_missing.contains(&told.jobs) {
                        jobs_missing.push(told.jobs);
                    }
                    continue;
                };
                let why = cell
                    .absence
                    .as_ref()
                    .map_or("no figure", |absence| &absence.why);
                let reason = format!("{} at {}: {why}.", line.what, column.here);
                if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
        }
        if !jobs_missing.is_empty() {
            jobs_missing.sort_unstable();
            let jobs: Vec<String> = jobs_missing.iter().map(u32::to_string).collect();
            reasons.push(format!(
                "By {} at once, not everything was measured.",
                jobs.join(", ")
            ));
        }
        reasons
    }
}

impl Told {
    /// The original's figures.
    fn pairs(&self) -> Vec<Pair> {
        let value = |value: f64| (!value.is_nan()).then_some(value);
        let base = self.values.first().copied().and_then(value);
        let pairs = self.values.iter().map(|&original| {
            let original = value(original);
            let ratio = original.zip(base);
            Pair {
                original,
                original_ratio: ratio.map(|(one, other)| self.unit.ratio(one, other)),
                ..Pair::default()
            }
        });
        pairs.collect()
    }
}

/// What a run has found for a column of a line. Of several file systems beneath, that in memory counts.
fn found<'a>(results: &'a Results, column: &Place, told: &Told) -> Option<&'a Cell> {
    let row = format!("{}{}", told.row, column.variant);
    let is_it =
        |cell: &&Cell| cell.row == row && cell.contestant == column.here && cell.jobs == told.jobs;
    let mut cells = results.cells.iter().filter(is_it);
    let first = cells.next()?;
    let mut all = std::iter::once(first).chain(cells);
    all.find(|cell| cell.lower == "tmpfs").or(Some(first))
}

#[cfg(test)]
mod tests;

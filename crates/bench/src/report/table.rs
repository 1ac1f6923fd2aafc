//! What all reports show: rows, and in each the targets against native.

use crate::results::statistics::{self, Middle};
use crate::results::{Cell, Results, Target};
use crate::row::{Row, list};

/// A row by so many processes.
pub(super) struct Line<'a> {
    pub(super) row: &'static Row,
    pub(super) jobs: u32,
    /// The one that others are compared with.
    pub(super) native: Option<&'a Cell>,
    /// The other targets that have a cell, in their order.
    pub(super) entries: Vec<Entry<'a>>,
}

/// A target in a row.
pub(super) struct Entry<'a> {
    pub(super) target: &'a Target,
    pub(super) cell: &'a Cell,
    /// How many times native's rate.
    pub(super) ratio: Option<Middle>,
    /// Whether no other mount was faster as far as the rounds tell.
    pub(super) best: bool,
}

/// With fewer rounds nothing is said.
const ROUNDS_MIN: usize = 3;
/// An interval around 1 whose ends are further apart says nothing.
const ALIKE_MAX: f64 = 1.25;

/// Whether the rounds are too few to say anything.
pub(super) fn is_few(ratio: &Middle) -> bool {
    ratio.count < ROUNDS_MIN
}

/// Whether nothing follows from a ratio: its interval is around 1, and wide.
pub(super) fn is_unsure(ratio: &Middle) -> bool {
    let around = ratio.least <= 1.0 && ratio.greatest >= 1.0;
    is_few(ratio) || around && ratio.greatest > ratio.least * ALIKE_MAX
}

/// All lines of a run, in the order of the rows.
pub(super) fn lines(results: &Results) -> Vec<Line<'_>> {
    let all = list::all().flat_map(move |row| {
        let cells = results.cells.iter().filter(|cell| cell.row == row.name);
        let mut jobs: Vec<u32> = cells.map(|cell| cell.jobs).collect();
        jobs.sort_unstable();
        jobs.dedup();
        jobs.into_iter().map(move |jobs| line(results, row, jobs))
    });
    all.collect()
}

fn line<'a>(results: &'a Results, row: &'static Row, jobs: u32) -> Line<'a> {
    let of = |target: &Target| results.cell(row.name, &target.name, jobs);
    let native = results.targets.first().and_then(of);
    let entries = results.targets.iter().skip(1).filter_map(|target| {
        let cell = of(target)?;
        let (ratio, best) = (
            native.and_then(|native| statistics::ratio(cell, native)),
            false,
        );
        Some(Entry {
            target,
            cell,
            ratio,
            best,
        })
    });
    let mut entries: Vec<Entry<'_>> = entries.collect();
    mark_best(&mut entries);
    Line {
        row,
        jobs,
        native,
        entries,
    }
}

/// The one with the greatest median, and those that pairs of rounds do not tell from it.
fn mark_best<'a>(entries: &mut [Entry<'a>]) {
    let measured = |entry: &Entry<'a>| Some((entry.ratio?.median, entry.cell));
    let measured = entries.iter().filter_map(measured);
    let best = measured.clone().max_by(|a, b| a.0.total_cmp(&b.0));
    let (Some((_, best)), 2..) = (best, measured.count()) else {
        return;
    };
    for entry in entries {
        let against = statistics::ratio(entry.cell, best);
        let is_slower = against.is_some_and(|ratio| !is_few(&ratio) && ratio.greatest < 1.0);
        entry.best = entry.ratio.is_some() && !is_slower;
    }
}

impl Line<'_> {
    pub(super) fn label(&self) -> String {
        label(self.row.name, self.jobs)
    }

    /// The target of that name, if it has a cell.
    pub(super) fn entry(&self, target: &str) -> Option<&Entry<'_>> {
        let mut entries = self.entries.iter();
        entries.find(|entry| entry.target.name == target)
    }
}

/// For people: `open-close × 2`.
pub(crate) fn label(row: &str, jobs: u32) -> String {
    match jobs {
        1 => row.to_owned(),
        jobs => format!("{row} × {jobs}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{is_unsure, lines};
    use crate::report::sample::run;
    use crate::results::statistics::Middle;

    #[test]
    fn few_rounds_and_wide_intervals_around_one_say_nothing() {
        let unsure = |values: &[f64]| is_unsure(&Middle::of(values.to_vec()).unwrap());
        assert!(!unsure(&[0.2, 0.9, 0.3, 0.4]) && !unsure(&[1.1, 1.2, 3.0]));
        assert!(!unsure(&[0.97, 1.02, 1.04]));
        assert!(unsure(&[0.6, 0.9, 1.1]) && unsure(&[0.1, 0.1]));
    }

    #[test]
    fn several_are_best_where_the_rounds_do_not_separate_them() {
        let mut results = run(&[
            ("create", "native", &[1000, 1000, 1000]),
            ("create", "ring", &[5000, 6000, 5500]),
            ("create", "dev", &[5100, 5700, 5600]),
            ("create", "old", &[9000, 9100, 9000]),
        ]);
        let best = lines(&results)[0]
            .entries
            .iter()
            .map(|entry| entry.best)
            .collect::<Vec<_>>();
        assert_eq!(best, [true, true, false]);
        results.cells[1].absence = Some(crate::results::Absence::failure("no space"));
        assert_eq!(
            lines(&results)[0].entries[0].ratio,
            None,
            "it failed in a round"
        );
    }
}

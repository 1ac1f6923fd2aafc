//! What all reports show: rows, and in each the targets against native.

use crate::results::statistics::{self, Middle};
use crate::results::{Cell, Group, Kind, Results, RowInfo, Target};

/// A table for each file system beneath.
pub struct Section<'a> {
    /// Its type.
    pub lower: &'a str,
    /// In the order in which they are shown.
    pub lines: Vec<RowResult<'a>>,
}

/// A row by so many jobs.
pub struct RowResult<'a> {
    /// What was measured.
    pub row: &'a RowInfo,
    /// By so many processes.
    pub jobs: u32,
    /// The one that others are compared with.
    pub native: Option<&'a Cell>,
    /// The other targets that have a cell, in their order.
    pub entries: Vec<Entry<'a>>,
}

/// A target in a row.
pub struct Entry<'a> {
    /// The target.
    pub target: &'a Target,
    /// What was found.
    pub cell: &'a Cell,
    /// How many times native's rate.
    pub ratio: Option<Middle>,
    /// Whether no other mount, but for the floor, was faster as far as the rounds tell.
    pub best: bool,
}

/// What an interval lets one say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of it is above 1.
    Faster,
    /// All of it is below 1.
    Slower,
    /// It is around 1, and narrow.
    Alike,
    /// It is around 1, and so wide that nothing follows.
    TooNoisy,
    /// There are not rounds enough for an interval.
    TooFew,
}

/// With fewer rounds nothing is said.
const ROUNDS_MIN: usize = 3;
/// An interval around 1 whose ends are further apart says nothing.
const ALIKE_MAX: f64 = 1.25;
/// Of an interval whose ends are further apart, only the side of 1 on which it lies counts.
const ROUGH_MIN: f64 = 2.0;

impl Verdict {
    /// Of a ratio.
    #[must_use]
    pub fn of(ratio: &Middle) -> Verdict {
        match ratio {
            _ if ratio.count < ROUNDS_MIN => Verdict::TooFew,
            _ if ratio.least > 1.0 => Verdict::Faster,
            _ if ratio.greatest < 1.0 => Verdict::Slower,
            _ if ratio.greatest <= ratio.least * ALIKE_MAX => Verdict::Alike,
            _ => Verdict::TooNoisy,
        }
    }
}

/// Whether the figure itself is not worth much, whichever side of 1 it is on.
pub fn is_rough(ratio: &Middle) -> bool {
    ratio.greatest > ratio.least * ROUGH_MIN
}

/// The samples of a cell, if they are all there and sound: of what has failed in a round, what is left
/// could be the better part.
pub fn is_sound(cell: &Cell) -> bool {
    let failed = cell.absence.as_ref().is_some_and(|absence| absence.failed);
    let sound = |sample: &crate::results::Sample| sample.operations > 0 && sample.nanoseconds > 0;
    !failed && !cell.samples.is_empty() && cell.samples.iter().all(sound)
}

/// How many times the rate of `base`, where both are sound.
pub fn ratio(cell: &Cell, base: &Cell) -> Option<Middle> {
    if is_sound(cell) && is_sound(base) {
        statistics::ratio(cell, base)
    } else {
        None
    }
}

/// The median rate, where the cell is sound.
pub fn rate(cell: &Cell) -> Option<Middle> {
    is_sound(cell).then(|| statistics::rate(cell)).flatten()
}

/// All sections of a run, by group, row and jobs.
pub fn sections(results: &Results) -> Vec<Section<'_>> {
    lowers(results)
        .into_iter()
        .map(|lower| Section {
            lower,
            lines: lines(results, lower),
        })
        .collect()
}

fn lines<'a>(results: &'a Results, lower: &'a str) -> Vec<RowResult<'a>> {
    let mut rows: Vec<&RowInfo> = results.rows.iter().collect();
    // Stable: within a group they stay as they are.
    rows.sort_by_key(|row| row.group);
    let mut lines = Vec::new();
    for row in rows {
        let here = |cell: &&Cell| cell.row == row.name && cell.lower == lower;
        let cells: Vec<&Cell> = results.cells.iter().filter(here).collect();
        let mut jobs: Vec<u32> = cells.iter().map(|cell| cell.jobs).collect();
        jobs.sort_unstable();
        jobs.dedup();
        for jobs in jobs {
            let cells = cells.iter().copied().filter(|cell| cell.jobs == jobs);
            lines.push(line(results, row, &cells.collect::<Vec<_>>()));
        }
    }
    lines
}

fn line<'a>(results: &'a Results, row: &'a RowInfo, cells: &[&'a Cell]) -> RowResult<'a> {
    let of = |target: &Target| {
        let mut cells = cells.iter().copied();
        cells.find(|cell| cell.target == target.name)
    };
    let (base, others) = match results.targets.split_first() {
        Some((base, others)) => (of(base), others),
        None => (None, &[][..]),
    };
    let mut entries: Vec<Entry<'_>> = others
        .iter()
        .filter_map(|target| {
            let cell = of(target)?;
            let ratio = base.and_then(|base| ratio(cell, base));
            Some(Entry {
                target,
                cell,
                ratio,
                best: false,
            })
        })
        .collect();
    mark_best(&mut entries);
    let jobs = cells.first().map_or(1, |cell| cell.jobs);
    RowResult {
        row,
        jobs,
        native: base,
        entries,
    }
}

/// The one with the greatest median, and those that pairs of rounds do not tell from it.
fn mark_best(entries: &mut [Entry<'_>]) {
    let rival = |entry: &&Entry<'_>| entry.target.kind != Kind::Floor && entry.ratio.is_some();
    let median = |entry: &Entry<'_>| entry.ratio.map_or(0.0, |ratio| ratio.median);
    let rivals = entries.iter().filter(rival);
    let best = rivals.max_by(|one, other| median(one).total_cmp(&median(other)));
    let Some(best) = best.map(|best| best.cell) else {
        return;
    };
    if entries.iter().filter(rival).count() < 2 {
        return;
    }
    for entry in entries {
        let is_rival = rival(&&*entry);
        let is_slower = |ratio: Middle| Verdict::of(&ratio) == Verdict::Slower;
        entry.best = is_rival
            && (std::ptr::eq(entry.cell, best) || !ratio(entry.cell, best).is_some_and(is_slower));
    }
}

impl<'a> RowResult<'a> {
    /// For people: `open-close × 2`.
    pub fn label(&self) -> String {
        match self.jobs {
            1 => self.row.name.clone(),
            jobs => format!("{} × {jobs}", self.row.name),
        }
    }

    /// The one of that name, if it has a cell.
    #[must_use]
    pub fn entry(&self, target: &str) -> Option<&Entry<'a>> {
        let mut entries = self.entries.iter();
        entries.find(|entry| entry.target.name == target)
    }

    /// Of that kind, the one with the greatest ratio to native.
    pub fn best_of(&self, kind: Kind) -> Option<&Entry<'a>> {
        self.entries
            .iter()
            .filter(|entry| entry.target.kind == kind)
            .filter_map(|entry| Some((entry.ratio?.median, entry)))
            .max_by(|(one, _), (other, _)| one.total_cmp(other))
            .map(|(_, entry)| entry)
    }
}

/// The file systems beneath, in the order in which they come.
pub fn lowers(results: &Results) -> Vec<&str> {
    each(results.cells.iter().map(|cell| cell.lower.as_str()))
}

/// Each value once, in the order in which they come.
pub fn each<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut values = Vec::new();
    for value in all {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

/// The heading over rows of a group.
pub fn heading(group: Group) -> &'static str {
    match group {
        Group::Data => "Reading and writing",
        Group::Metadata => "Names and attributes",
        Group::Programs => "Whole programs",
    }
}

#[cfg(test)]
mod tests {
    use super::{Verdict, sections};
    use crate::report::sample::Builder;
    use crate::results::Kind;
    use crate::results::statistics::Middle;

    fn verdict(values: &[f64]) -> Verdict {
        Verdict::of(&Middle::of(values.to_vec()).unwrap())
    }

    #[test]
    fn verdicts_are_for_intervals_without_one() {
        assert_eq!(verdict(&[0.2, 0.9, 0.3, 0.4]), Verdict::Slower);
        assert_eq!(verdict(&[1.1, 1.2, 3.0]), Verdict::Faster);
        assert_eq!(verdict(&[0.97, 1.02, 1.04]), Verdict::Alike);
        assert_eq!(verdict(&[0.6, 0.9, 1.1]), Verdict::TooNoisy);
        assert_eq!(verdict(&[0.1, 0.1]), Verdict::TooFew);
    }

    #[test]
    fn several_are_best_where_the_rounds_do_not_separate_them() {
        let results = Builder::new()
            .targets(&[
                ("native", Kind::Native),
                ("ring", Kind::Ours),
                ("dev", Kind::Ours),
                ("libfuse", Kind::Other),
                ("floor-dev", Kind::Floor),
            ])
            .cell("create", "native", &[1000, 1000, 1000])
            .cell("create", "ring", &[5000, 6000, 5500])
            .cell("create", "dev", &[5100, 5700, 5600])
            .cell("create", "libfuse", &[9000, 9100, 9000])
            .cell("create", "floor-dev", &[3000, 3000, 3000])
            .results();
        let sections = sections(&results);
        let entries = &sections[0].lines[0].entries;
        let best: Vec<&str> = entries
            .iter()
            .filter(|entry| entry.best)
            .map(|entry| entry.target.name.as_str())
            .collect();
        assert_eq!(best, ["ring", "dev"]);
    }

    #[test]
    fn a_cell_that_failed_in_a_round_has_no_figure() {
        let builder = Builder::new()
            .targets(&[("native", Kind::Native), ("ring", Kind::Ours)])
            .cell("create", "native", &[1000, 1000, 1000])
            .cell("create", "ring", &[5000, 6000]);
        let results = builder.failing("create", "ring", "no space").results();
        let sections = sections(&results);
        assert_eq!(sections[0].lines[0].entries[0].ratio, None);
    }
}

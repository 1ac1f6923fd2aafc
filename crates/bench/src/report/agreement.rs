//! Rows that fio does and a loop of our own does as well: how far the two agree.

use super::table::{Line, Section, ratio};
use crate::results::statistics::Middle;
use crate::results::{Cell, Row};

/// What the name of the loop's row ends with.
const LOOP: &str = "-loop";
/// What is closer to 1 agrees, whatever the interval.
const AGREES: f64 = 1.1;

/// A row by both, at one contestant.
pub(crate) struct Agreement<'a> {
    pub(crate) row: &'a Row,
    pub(crate) contestant: &'a str,
    /// The loop's rate over fio's, in the median of the rounds.
    pub(crate) times: Middle,
}

impl Agreement<'_> {
    /// Whether they agree, as far as can be told.
    pub(crate) fn agrees(&self) -> bool {
        let near = (1.0 / AGREES..=AGREES).contains(&self.times.median);
        near || (self.times.least <= 1.0 && self.times.greatest >= 1.0)
    }
}

/// All rows of a section that were done by both.
pub(crate) fn agreements<'a>(section: &Section<'a>) -> Vec<Agreement<'a>> {
    let mut all = Vec::new();
    for by_loop in &section.lines {
        let Some(name) = by_loop.row.name.strip_suffix(LOOP) else {
            continue;
        };
        let is_twin = |line: &&Line<'_>| line.row.name == name && line.jobs == by_loop.jobs;
        let Some(by_fio) = section.lines.iter().find(is_twin) else {
            continue;
        };
        for cell in cells(by_loop) {
            let twin = cells(by_fio).find(|other| other.contestant == cell.contestant);
            all.extend(twin.and_then(|twin| {
                Some(Agreement {
                    row: by_fio.row,
                    contestant: &cell.contestant,
                    times: ratio(cell, twin)?,
                })
            }));
        }
    }
    all
}

fn cells<'a, 'b>(line: &'b Line<'a>) -> impl Iterator<Item = &'a Cell> + 'b {
    let entries = line.entries.iter().map(|entry| entry.cell);
    line.native.into_iter().chain(entries)
}

#[cfg(test)]
mod tests {
    use super::agreements;
    use crate::report::sample::Builder;
    use crate::report::table::sections;
    use crate::results::Kind;

    #[test]
    fn rows_of_both_generators_are_compared_and_no_others() {
        let results = Builder::new()
            .contestants(&[("native", Kind::Native), ("ring", Kind::Ours)])
            .cell("read-4k", "native", &[1000, 1100, 1000])
            .cell("read-4k", "ring", &[5000, 5000, 5100])
            .cell("read-4k-loop", "native", &[1000, 1090, 1020])
            .cell("read-4k-loop", "ring", &[9000, 9100, 9000])
            .cell("write-4k-loop", "native", &[1000, 1000, 1000])
            .results();
        let sections = sections(&results);
        let found = agreements(&sections[0]);
        let found: Vec<(&str, &str, bool)> = found
            .iter()
            .map(|one| (one.row.name.as_str(), one.contestant, one.agrees()))
            .collect();
        assert_eq!(
            found,
            [("read-4k", "native", true), ("read-4k", "ring", false)]
        );
    }
}

//! What was measured in guests, in Markdown.

use super::markdown::{Grid, NONE, with_interval};
use crate::published::{kernels, setting};
use crate::results::statistics::Middle;
use crate::results::{GuestRow, Results};

/// Who everybody is compared with, and who comes before others.
const CONTESTANTS: [&str; 3] = [OURS, "virtiofsd", "9p"];
const OURS: &str = "thrufs";

/// Where the two kernels opened and closed files: a name for people, and one of a contestant.
const PLACES: [(&str, &str); 2] = [("tmpfs", "tmpfs"), ("share", OURS)];

fn rows(results: &Results) -> impl Iterator<Item = &GuestRow> {
    results.guests.iter().flat_map(|run| &run.rows)
}

/// How each run was measured: a sentence for each.
pub(super) fn run(results: &Results) -> String {
    let mut sentences: Vec<String> = Vec::new();
    for sentence in results.guests.iter().map(setting) {
        if !sentences.contains(&sentence) {
            sentences.push(sentence);
        }
    }
    sentences.iter().map(|one| format!("{one}\n")).collect()
}

/// Medians of all contestants, and how many times that of each other one ours is.
pub(super) fn ratios(results: &Results) -> String {
    let has = |name: &&&str| rows(results).any(|row| row.of(name).is_some());
    let names: Vec<&str> = CONTESTANTS.iter().filter(has).copied().collect();
    let mut head = vec!["row".to_owned(), "unit".to_owned()];
    head.extend(names.iter().map(|name| (*name).to_owned()));
    let others = || names.iter().filter(|name| **name != OURS);
    head.extend(others().map(|name| format!("{OURS} / {name}")));
    let mut grid = Grid::new(&head);
    let mut is_empty = true;
    for row in rows(results).filter(|row| row.kernel().is_none()) {
        is_empty = false;
        let mut cells = vec![row.name.clone(), row.unit.clone()];
        cells.extend(names.iter().map(|name| median(row.of(name))));
        cells.extend(others().map(|name| ratio(row.of(OURS), row.of(name))));
        grid.line(&cells);
    }
    if is_empty {
        return String::new();
    }
    grid.finished()
}

/// Files opened and closed in a second, by the older and the newer kernel.
pub(super) fn by_kernel(results: &Results) -> String {
    let Some((before, after)) = kernels(results.guests.iter()) else {
        return String::new();
    };
    let name = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    let (before, after) = (name(before), name(after));
    let head = [
        "opened and closed per second".to_owned(),
        format!("Linux {before}"),
        format!("Linux {after}"),
        format!("{after} / {before}"),
    ];
    let mut grid = Grid::new(&head);
    for (place, contestant) in PLACES {
        for jobs in [1, 2] {
            for (word, without) in [("rseq", ""), ("no-rseq", ", without rseq")] {
                let values = |kernel: &str| {
                    let wanted = format!("linux-{kernel}-{word}-{jobs}");
                    let row = rows(results).find(|row| row.name == wanted);
                    row.and_then(|row| row.of(contestant))
                };
                let (old, new) = (values(&before), values(&after));
                grid.line(&[
                    format!("{place}, {jobs}{without}"),
                    median(old),
                    median(new),
                    ratio(new, old),
                ]);
            }
        }
    }
    grid.finished()
}

fn median(values: Option<&[f64]>) -> String {
    let middle = values.and_then(|values| Middle::of(values.to_vec()));
    middle.map_or(NONE.to_owned(), |middle| format!("{:.0}", middle.median))
}

/// The nth of both were measured one after the other.
fn ratio(one: Option<&[f64]>, other: Option<&[f64]>) -> String {
    let ratios = one.zip(other).map(|(one, other)| {
        let pairs = one.iter().zip(other);
        pairs.map(|(one, other)| one / other).collect()
    });
    let middle = ratios.and_then(Middle::of);
    middle.map_or(NONE.to_owned(), |middle| with_interval(&middle))
}

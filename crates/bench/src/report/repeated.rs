//! A run beside the one that it has repeated: how each ratio to native differs.

use super::figure;
use super::grid::{Grid, Text, Weight, paint};
use super::screen::Screen;
use super::table::{RowResult, Section, Verdict, sections};
use crate::results::Results;
use crate::results::statistics::Middle;

/// In place of a figure that there is not.
const NONE: &str = "–";

/// A line for each ratio that both have; those that one of them lacks are counted.
#[must_use]
pub(crate) fn repeated(then: &Results, now: &Results, screen: Screen) -> String {
    let (before, after) = (sections(then), sections(now));
    let mut text = String::new();
    let mut lacking = 0;
    for section in &after {
        let before = counterpart(section, &before, after.len());
        let (grid, without) = of(section, before);
        lacking += without;
        let title = format!(
            "Against {}, {} beneath: ratios to native then and now",
            figure::moment(then.started),
            beneath(section, before)
        );
        let title = paint(&Text::new(title, Weight::Bold), screen);
        text += &format!("{title}\n{}\n", grid.text(screen));
    }
    if lacking > 0 {
        text += &format!("{lacking} ratios are those of one run only.\n");
    }
    text + "Apart: whether the two intervals are. Absolute figures of two runs are not compared: the machine may \
            have been busier.\n"
}

/// The same file system beneath; or the only one, where each has one.
fn counterpart<'a, 'b>(
    section: &Section<'_>,
    before: &'b [Section<'a>],
    count: usize,
) -> Option<&'b Section<'a>> {
    let same = before.iter().find(|one| one.lower == section.lower);
    match before {
        [only] if count == 1 => Some(only),
        _ => same,
    }
}

fn beneath(section: &Section<'_>, before: Option<&Section<'_>>) -> String {
    match before {
        Some(before) if before.lower != section.lower => {
            format!("{} then and {} now", before.lower, section.lower)
        }
        _ => section.lower.to_owned(),
    }
}

/// The table, and how many ratios one of the two lacks.
fn of(section: &Section<'_>, before: Option<&Section<'_>>) -> (Grid, usize) {
    let head = ["row", "mode", "then", "now", "now/then", "apart"];
    let mut grid = Grid::new(head.map(Text::from).to_vec());
    let mut lacking = 0;
    for line in &section.lines {
        let is_it = |one: &&RowResult<'_>| one.row.name == line.row.name && one.jobs == line.jobs;
        let then = before.and_then(|before| before.lines.iter().find(is_it));
        for entry in &line.entries {
            let name = &entry.target.name;
            let then = then
                .and_then(|then| then.entry(name))
                .and_then(|entry| entry.ratio);
            match (then, entry.ratio) {
                (Some(then), Some(now)) => {
                    let mut cells = vec![Text::from(line.label()), Text::from(name.as_str())];
                    cells.extend(compared(&then, &now));
                    grid.line(cells);
                }
                (None, None) => {}
                _ => lacking += 1,
            }
        }
    }
    (grid, lacking)
}

fn compared(then: &Middle, now: &Middle) -> [Text; 4] {
    let few = |ratio: &Middle| Verdict::of(ratio) == Verdict::TooFew;
    let (apart, weight) = if few(then) || few(now) {
        (NONE, Weight::Faint)
    } else if now.least > then.greatest {
        ("faster", Weight::Bold)
    } else if now.greatest < then.least {
        ("slower", Weight::Alarm)
    } else {
        ("no", Weight::Usual)
    };
    [
        Text::from(super::terminal::with_bar(then)),
        Text::from(super::terminal::with_bar(now)),
        Text::new(figure::times(now.median / then.median), weight),
        Text::new(apart, weight),
    ]
}

#[cfg(test)]
mod tests {
    use super::repeated;
    use crate::report::Screen;
    use crate::report::sample::Builder;
    use crate::results::{Kind, Results};

    fn run(lower: &str, ring: &[u64], dev: &[u64]) -> Results {
        let all = [
            ("native", Kind::Native),
            ("ring", Kind::Ours),
            ("dev", Kind::Ours),
        ];
        let builder = Builder::new().targets(&all).on(lower);
        let builder = builder.cell("stat-cold", "native", &[1000; 5]);
        let builder = builder.cell("stat-cold", "ring", ring);
        builder.cell("stat-cold", "dev", dev).results()
    }

    fn words(then: &Results, now: &Results, mode: &str) -> Vec<String> {
        let text = repeated(then, now, Screen::file());
        let line = text.lines().find(|line| {
            line.starts_with("stat-cold") && line.split_whitespace().nth(1) == Some(mode)
        });
        let line = line.unwrap_or_else(|| panic!("{text}"));
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn ratios_that_differ_are_told_from_those_that_do_not() {
        let then = run(
            "ext4",
            &[2000, 2010, 1990, 2020, 1980],
            &[4000, 6000, 5000, 5500, 4500],
        );
        let now = run(
            "ext4",
            &[4000, 4010, 3990, 4020, 3980],
            &[5000, 4800, 5600, 5900, 4200],
        );
        let ring = words(&then, &now, "ring");
        assert_eq!(ring[ring.len() - 2..], ["0.50", "slower"]);
        let back = words(&now, &then, "ring");
        assert_eq!(back[back.len() - 2..], ["2.00", "faster"]);
        let dev = words(&then, &now, "dev");
        assert_eq!(dev.last().unwrap(), "no");
    }

    #[test]
    fn few_rounds_tell_nothing_and_another_place_is_named() {
        let then = run("ext4", &[2000, 2000], &[2000; 5]);
        let now = run("tmpfs", &[8000, 8000], &[]);
        let ring = words(&then, &now, "ring");
        assert_eq!(ring.last().unwrap(), "–");
        let text = repeated(&then, &now, Screen::file());
        assert!(text.contains("ext4 then and tmpfs now"), "{text}");
        assert!(
            text.contains("1 ratios are those of one run only"),
            "{text}"
        );
    }
}

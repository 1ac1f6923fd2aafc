//! The table for the terminal.

use super::compared::{Comparison, comparisons};
use super::figure;
use super::grid::{Grid, Text, Weight, paint, wrapped};
use super::screen::Screen;
use super::standing_out::standing_out;
use super::table::{self, Entry, RowResult, Section, Verdict, is_rough, sections};
use crate::results::statistics::Middle;
use crate::results::{Cell, Ending, Results};

/// In place of a figure that there cannot be.
const NONE: &str = "–";

/// All that a run has found, for `screen`: ratios to native, what operations cost, comparisons, and what
/// stands out.
#[must_use]
pub fn terminal(results: &Results, screen: Screen) -> String {
    let sections = sections(results);
    let mut text = head(results, &sections, screen);
    for section in &sections {
        text += "\n";
        text += &ratios(results, section, screen);
    }
    text += &legend(&sections, screen);
    for section in &sections {
        text += &titled(
            &format!(
                "Requests / system calls for each operation ({})",
                section.lower
            ),
            costs(results, section),
            screen,
        );
        text += &titled(
            &format!("One against another ({})", section.lower),
            against(section),
            screen,
        );
    }
    text += &remarks(results, screen);
    text
}

/// The ratios to native of what was measured until now, and nothing else.
#[must_use]
pub fn so_far(results: &Results, screen: Screen) -> String {
    let sections = sections(results);
    let tables = sections
        .iter()
        .map(|section| ratios(results, section, screen));
    tables.collect::<Vec<_>>().join("\n")
}

fn titled(title: &str, grid: Option<Grid>, screen: Screen) -> String {
    let Some(grid) = grid else {
        return String::new();
    };
    let title = paint(&Text::new(title, Weight::Bold), screen);
    format!("\n{title}\n{}", grid.text(screen))
}

fn head(results: &Results, sections: &[Section<'_>], screen: Screen) -> String {
    let machine = &results.machine;
    let ending = match results.ending {
        Ending::Complete => "",
        Ending::Interrupted => ", stopped before its end",
    };
    let mut text = format!(
        "{}\n",
        paint(
            &Text::new(
                format!("thrufs bench, suite {}{ending}", results.suite),
                Weight::Bold
            ),
            screen
        )
    );
    let place = format!(
        "{}, Linux {}, {} × {}, {}",
        figure::moment(results.started),
        machine.kernel,
        machine.processors,
        machine.processor,
        figure::bytes(machine.memory_bytes)
    );
    text += &wrapped(&place, "", "", screen);
    text += &wrapped(&method(results, sections), "", "", screen);
    text
}

/// How the figures are to be read.
pub(super) fn method(results: &Results, sections: &[Section<'_>]) -> String {
    let ratios = sections.iter().flat_map(|section| &section.lines);
    let ratios = ratios.flat_map(|line| line.entries.iter().filter_map(|entry| entry.ratio));
    let counts: Vec<Middle> = ratios.collect();
    let base = results.targets.first();
    let base = base.map_or("native", |base| base.name.as_str());
    let most = counts.iter().max_by_key(|ratio| ratio.count);
    let least = counts.iter().map(|ratio| ratio.count).min();
    let Some((most, least)) = most.zip(least) else {
        return format!("Nothing was compared with {base}.");
    };
    let rounds = if least == most.count {
        format!("{least} interleaved rounds")
    } else {
        format!("{least} to {} interleaved rounds", most.count)
    };
    format!(
        "{rounds}. A figure is the rate over that of {base} in the same round: the median, ± half the \
         interval in which the true one lies with a chance of {}.",
        figure::percent(most.confidence)
    )
}

fn ratios(results: &Results, section: &Section<'_>, screen: Screen) -> String {
    let present: Vec<&str> = present(results, section, |_| true);
    let base = results.targets.first();
    let base = base.map_or("native", |base| base.name.as_str());
    let mut head = vec![Text::new(
        format!("{} beneath", section.lower),
        Weight::Bold,
    )];
    head.push(Text::new(base, Weight::Bold));
    head.extend(present.iter().map(|name| Text::new(*name, Weight::Bold)));
    let mut grid = Grid::new(head);
    let mut group = None;
    for line in &section.lines {
        if group != Some(line.row.group) {
            group = Some(line.row.group);
            grid.heading(Text::new(table::heading(line.row.group), Weight::Faint));
        }
        let mut cells = vec![Text::from(format!("  {}", line.label()))];
        cells.push(native(line));
        cells.extend(present.iter().map(|name| ratio(line.entry(name))));
        grid.line(cells);
    }
    grid.text(screen)
}

/// Targets that have a cell of that kind in the section, in their order; without native.
fn present<'a>(
    results: &'a Results,
    section: &Section<'_>,
    wanted: impl Fn(&Cell) -> bool,
) -> Vec<&'a str> {
    let has = |name: &str| {
        let mut entries = section.lines.iter().filter_map(|line| line.entry(name));
        entries.any(|entry| wanted(entry.cell))
    };
    let names = results.targets.iter().map(|one| one.name.as_str());
    names.filter(|name| has(name)).collect()
}

fn native(line: &RowResult<'_>) -> Text {
    let rate = line.native.and_then(table::rate);
    match rate {
        Some(rate) => Text::from(figure::rate(line.row, rate.median)),
        None => line.native.map_or(NONE.into(), absent),
    }
}

fn ratio(entry: Option<&Entry<'_>>) -> Text {
    let Some(entry) = entry else {
        return NONE.into();
    };
    let Some(ratio) = &entry.ratio else {
        return absent(entry.cell);
    };
    let verdict = Verdict::of(ratio);
    let unsure = matches!(verdict, Verdict::TooNoisy | Verdict::TooFew);
    let marks = match (unsure, is_rough(ratio)) {
        (true, _) => "?",
        (false, true) => "~",
        (false, false) => "",
    };
    let best = if entry.best { "*" } else { "" };
    let text = format!("{best}{marks}{}", with_bar(ratio));
    let weight = match (unsure, entry.best) {
        (true, _) => Weight::Faint,
        (false, true) => Weight::Bold,
        (false, false) => Weight::Usual,
    };
    Text::new(text, weight)
}

/// `0.94 ±3 %`; or `0.32 [0.04 to 14]`, where half the interval is more than the figure.
pub(super) fn with_bar(ratio: &Middle) -> String {
    let times = figure::times;
    let median = times(ratio.median);
    if ratio.spread() > 1.0 {
        return format!(
            "{median} [{} to {}]",
            times(ratio.least),
            times(ratio.greatest)
        );
    }
    format!("{median} ±{}", figure::percent(ratio.spread()))
}

fn absent(cell: &Cell) -> Text {
    match &cell.absence {
        Some(absence) if absence.failed => Text::new("failed", Weight::Alarm),
        Some(_) => Text::new("absent", Weight::Faint),
        None => NONE.into(),
    }
}

/// What the marks mean that are there.
fn legend(sections: &[Section<'_>], screen: Screen) -> String {
    let lines = sections.iter().flat_map(|section| &section.lines);
    let entries: Vec<&Entry<'_>> = lines.flat_map(|line| &line.entries).collect();
    let ratios = || entries.iter().filter_map(|entry| entry.ratio);
    let unsure = |ratio: Middle| matches!(Verdict::of(&ratio), Verdict::TooNoisy | Verdict::TooFew);
    let mut parts = Vec::new();
    if entries.iter().any(|entry| entry.best) {
        parts.push("* the best mount, or not separable from it");
    }
    if ratios().any(|ratio| !unsure(ratio) && is_rough(&ratio)) {
        parts.push("~ the spread is wider than the figure's half");
    }
    if ratios().any(unsure) {
        parts.push("? too noisy to tell whether it is faster or slower");
    }
    if parts.is_empty() {
        return String::new();
    }
    wrapped(&parts.join("; "), "", "  ", screen)
}

fn costs(results: &Results, section: &Section<'_>) -> Option<Grid> {
    let counted = present(results, section, |cell| cell.counts.is_some());
    if counted.is_empty() {
        return None;
    }
    let mut head = vec![Text::default()];
    head.extend(counted.iter().map(|name| Text::new(*name, Weight::Bold)));
    let mut grid = Grid::new(head);
    for line in &section.lines {
        let entries: Vec<Option<&Entry<'_>>> =
            counted.iter().map(|name| line.entry(name)).collect();
        let has_counts = |entry: &Entry<'_>| entry.cell.counts.is_some();
        if !entries.iter().flatten().any(|entry| has_counts(entry)) {
            continue;
        }
        let mut cells = vec![Text::from(format!("  {}", line.label()))];
        let costs = entries.iter().map(|entry| {
            let counts = entry.and_then(|entry| entry.cell.counts.as_ref());
            counts.map_or(NONE.into(), |counts| Text::from(figure::cost(counts)))
        });
        cells.extend(costs);
        grid.line(cells);
    }
    Some(grid)
}

fn against(section: &Section<'_>) -> Option<Grid> {
    let lines: Vec<(&RowResult<'_>, Vec<Comparison<'_>>)> = section
        .lines
        .iter()
        .map(|line| (line, comparisons(line)))
        .collect();
    let all = lines.iter().flat_map(|(_, comparisons)| comparisons);
    let columns = table::each(all.map(|one| one.column.as_str()));
    if columns.is_empty() {
        return None;
    }
    let mut head = vec![Text::default()];
    head.extend(columns.iter().map(|title| Text::new(*title, Weight::Bold)));
    let mut grid = Grid::new(head);
    for (line, comparisons) in lines.iter().filter(|(_, some)| !some.is_empty()) {
        let mut cells = vec![Text::from(format!("  {}", line.label()))];
        cells.extend(columns.iter().map(|column| {
            let mut all = comparisons.iter();
            let one = all.find(|one| one.column == *column);
            one.map_or(NONE.into(), |one| with_bar(&one.times).into())
        }));
        grid.line(cells);
    }
    Some(grid)
}

fn remarks(results: &Results, screen: Screen) -> String {
    let mut text = String::new();
    let mut part = |title: &str, sentences: Vec<String>| {
        if sentences.is_empty() {
            return;
        }
        let title = paint(&Text::new(title, Weight::Bold), screen);
        text += &format!("\n{title}\n");
        for sentence in sentences {
            text += &wrapped(&sentence, "- ", "  ", screen);
        }
    };
    let findings = standing_out(results);
    let findings = findings.iter().map(|finding| format!("{finding}."));
    part("What stands out", findings.collect());
    part("Remarks", results.remarks.clone());
    part("Not there", absences(results));
    text
}

/// Why what is not there is not there: targets first, then cells, each reason once.
pub(super) fn absences(results: &Results) -> Vec<String> {
    let targets = results.targets.iter().filter_map(|target| {
        let why = target.absent.as_ref()?;
        Some(format!("{}: {why}", target.name))
    });
    let cells = results.cells.iter().filter_map(|cell| {
        let absence = cell.absence.as_ref()?;
        let failed = if absence.failed { "failed: " } else { "" };
        let (row, target) = (&cell.row, &cell.target);
        Some(format!("{row} on {target}: {failed}{}", absence.why))
    });
    table::each(targets.chain(cells))
}

#[cfg(test)]
mod tests {
    use super::terminal;
    use crate::report::sample;
    use crate::report::screen::Screen;

    fn shown(width: usize, colours: bool) -> String {
        terminal(&sample::usual(), Screen { width, colours })
    }

    #[test]
    fn figures_stand_where_they_belong() {
        let text = shown(200, false);
        let line = |start: &str| -> Vec<&str> {
            let mut lines = text.lines().map(str::trim_start);
            let line = lines.find(|line| line.starts_with(start)).unwrap();
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect()
        };
        assert_eq!(
            line("ext4 beneath"),
            [
                "ext4 beneath",
                "native",
                "dev",
                "ring",
                "ring+pt",
                "libfuse",
                "floor-uring"
            ]
        );
        let random = line("random-read-4k");
        assert_eq!(random[1..4], ["4.09 GB/s", "0.11 ±7 %", "0.14 ±7 %"]);
        assert_eq!(random[4], "*0.98 ±3 %");
        assert_eq!(line("create × 2")[1], "769 k/s");
        assert_eq!(line("build-c")[1], "9.00 ms");
        assert!(text.contains("failed"), "{text}");
        assert!(text.contains("build-c on libfuse: failed: make ended: exit status 2"));
        assert!(text.contains("1 / 4"), "{text}");
        assert!(text.contains("our best / libfuse") && text.contains("ring / dev"));
    }

    #[test]
    fn no_line_is_wider_than_the_screen() {
        for width in [60, 80, 132] {
            for line in shown(width, false).lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn escape_sequences_are_for_colours_only() {
        assert!(!shown(100, false).contains('\u{1b}'));
        assert!(shown(100, true).contains("\u{1b}[1m"));
    }
}

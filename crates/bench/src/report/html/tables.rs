//! Tables: comparisons and goals, every figure, what rows and targets are.

use super::marks;
use super::page::{Plain, add, table};
use crate::report::compared::{Comparison, comparisons};
use crate::report::figure;
use crate::report::table::{RowResult, Section, rate};
use crate::report::terminal::with_bar;
use crate::results::statistics::Middle;
use crate::results::{Cell, Results};

/// Ours against others and against each other.
pub(super) fn against(section: &Section<'_>) -> String {
    let of_line = |line| {
        comparisons(line)
            .into_iter()
            .map(move |one| comparison(line, &one))
    };
    let lines: String = section.lines.iter().flat_map(of_line).collect();
    if lines.is_empty() {
        return lines;
    }
    let caption = format!(
        "The rate of the first over that of the second, {} beneath",
        section.lower
    );
    let head = ["Row", "Compared", "Median of the rounds", "Interval"];
    table(&caption, &head, &lines)
}

fn comparison(line: &RowResult<'_>, one: &Comparison<'_>) -> String {
    format!(
        "<tr><th scope=\"row\">{}</th><td class=\"text\">{} / {}</td><td>{}</td><td>{}</td></tr>\n",
        Plain(&line.label()),
        Plain(one.subject),
        Plain(one.other),
        figure::precise(&one.times)[0],
        interval(&one.times),
    )
}

/// Requests and system calls for an operation, of the targets that were counted.
pub(super) fn costs(results: &Results, section: &Section<'_>) -> String {
    let mut lines = String::new();
    for line in &section.lines {
        for entry in &line.entries {
            let Some(counts) = &entry.cell.counts else {
                continue;
            };
            let each = |count: u64| figure::each(count, counts.operations);
            let requests = counts.requests.as_ref().map(|requests| {
                let some = requests.iter().filter(|(_, count)| **count > 0);
                let some = some.map(|(name, count)| format!("{} {name}", each(*count)));
                (
                    each(requests.values().sum()),
                    some.collect::<Vec<_>>().join(", "),
                )
            });
            let (all, named) = requests.unwrap_or(("–".to_owned(), String::new()));
            let calls = counts.system_calls.map_or("–".to_owned(), each);
            let name = &entry.target.name;
            add!(
                lines,
                "<tr><th scope=\"row\">{}</th><td class=\"text name\">{} {}</td><td>{}</td>\
                 <td class=\"text prose\">{}</td><td>{}</td></tr>\n",
                Plain(&line.label()),
                marks::alone(marks::of(results, name)),
                Plain(name),
                Plain(&all),
                Plain(&named),
                Plain(&calls),
            );
        }
    }
    if lines.is_empty() {
        return lines;
    }
    let caption = format!(
        "For each operation, counted in a pass of its own, {} beneath",
        section.lower
    );
    let head = [
        "Row",
        "Mount",
        "Requests",
        "Which",
        "System calls of the server",
    ];
    table(&caption, &head, &lines)
}

fn interval(middle: &Middle) -> String {
    let [_, least, greatest] = figure::precise(middle);
    format!("{least} to {greatest}")
}

/// Every figure of a section, with the rates of all rounds.
pub(super) fn raw(results: &Results, section: &Section<'_>) -> String {
    let mut lines = String::new();
    for line in &section.lines {
        let ratio = |name: &str| line.entry(name).and_then(|entry| entry.ratio);
        let mut cells: Vec<&Cell> = line.native.into_iter().collect();
        cells.extend(line.entries.iter().map(|entry| entry.cell));
        for cell in cells {
            let (name, ratio) = (&cell.target, ratio(&cell.target));
            let median = rate(cell).map(|rate| figure::rate(line.row, rate.median));
            let why = cell.absence.as_ref().map(|absence| absence.why.as_str());
            let samples = cell.samples.iter();
            let samples: Vec<String> = samples
                .map(|sample| figure::rate(line.row, sample.per_second()))
                .collect();
            add!(
                lines,
                "<tr><th scope=\"row\">{}</th><td class=\"text name\">{} {}</td><td>{}</td><td>{}</td>\
                 <td>{}</td><td class=\"text samples\">{}</td></tr>\n",
                Plain(&line.label()),
                marks::alone(marks::of(results, name)),
                Plain(name),
                Plain(median.as_deref().unwrap_or("–")),
                Plain(&ratio.map_or("–".to_owned(), |ratio| with_bar(&ratio))),
                ratio.map_or(String::new(), |ratio| interval(&ratio)),
                Plain(&match why {
                    Some(why) if samples.is_empty() => why.to_owned(),
                    _ => samples.join(" · "),
                }),
            );
        }
    }
    let caption = format!("Every figure, {} beneath", section.lower);
    let head = [
        "Row",
        "Mount",
        "Median rate",
        "Times native",
        "Interval",
        "Each round",
    ];
    table(&caption, &head, &lines)
}

/// Half, nine tenths, 99 in a hundred, all.
pub(super) fn latencies(section: &Section<'_>, results: &Results) -> String {
    let mut lines = String::new();
    for line in &section.lines {
        let mut cells: Vec<&Cell> = line.native.into_iter().collect();
        cells.extend(line.entries.iter().map(|entry| entry.cell));
        for cell in cells {
            let Some(latency) = &cell.latency else {
                continue;
            };
            let name = &cell.target;
            add!(
                lines,
                "<tr><th scope=\"row\">{}</th><td class=\"text name\">{} {}</td>",
                Plain(&line.label()),
                marks::alone(marks::of(results, name)),
                Plain(name)
            );
            for wanted in [500, 900, 990, 999, 1000] {
                let found = latency.within.iter().find(|(share, _)| *share >= wanted);
                let time =
                    found.map_or("–".to_owned(), |(_, time)| figure::duration(*time as f64));
                add!(lines, "<td>{}</td>", Plain(&time));
            }
            add!(lines, "<td>{}</td></tr>\n", latency.operations);
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let caption = format!("Time of single operations, {} beneath", section.lower);
    let head = [
        "Row",
        "Mount",
        "Half within",
        "90 %",
        "99 %",
        "99.9 %",
        "The longest",
        "Operations",
    ];
    table(&caption, &head, &lines)
}

/// What the rows are.
pub(super) fn rows(results: &Results) -> String {
    let mut lines = String::new();
    for row in &results.rows {
        add!(
            lines,
            "<tr><th scope=\"row\">{}</th><td class=\"text prose\"><b>{}</b>{}{}</td><td class=\"text\">{}</td>\
             <td class=\"text\">{}</td></tr>\n",
            Plain(&row.name),
            Plain(&row.title),
            if row.about.is_empty() { "" } else { ". " },
            Plain(&row.about),
            Plain(&row.engine),
            if row.cold { "yes" } else { "no" },
        );
    }
    table("Rows", &["Row", "What it is", "Done by", "Cold"], &lines)
}

/// The targets.
pub(super) fn targets(results: &Results) -> String {
    let mut lines = String::new();
    for one in &results.targets {
        let memory = one.resident_kib.map(|kib| figure::bytes(kib * 1024));
        let absent = one.absent.as_ref().map(|why| format!(" Absent: {why}"));
        add!(
            lines,
            "<tr><th scope=\"row\">{} {}</th><td class=\"text prose\">{}{}</td><td class=\"text prose\"><code>{}</code></td>\
             <td>{}</td></tr>\n",
            marks::alone(marks::of(results, &one.name)),
            Plain(&one.name),
            Plain(&one.title),
            Plain(absent.as_deref().unwrap_or_default()),
            Plain(&one.options),
            Plain(memory.as_deref().unwrap_or("–")),
        );
    }
    table(
        "Target",
        &["Name", "What it is", "Options", "Memory after"],
        &lines,
    )
}

//! Requests and system calls for an operation: each row with two bars for each contestant.

use super::lanes::{Axis, PITCH, lane};
use super::marks;
use super::page::{Plain, add};
use super::ratios::named;
use crate::report::figure::each;
use crate::report::table::{Entry, Line, Section};
use crate::results::{Counts, Results};

/// The axis ends here, whatever the counts: longer bars are cut off, so that short ones can be seen.
const AXIS_MAX: f64 = 10.0;

/// All rows of a section in which something was counted.
pub(super) fn all(results: &Results, section: &Section<'_>) -> String {
    let lines: Vec<(&Line<'_>, Vec<Counted<'_>>)> = section
        .lines
        .iter()
        .map(|line| (line, line.entries.iter().filter_map(Counted::of).collect()))
        .filter(|(_, counted): &(_, Vec<Counted<'_>>)| !counted.is_empty())
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    let counted = || lines.iter().flat_map(|(_, counted)| counted);
    let values = counted().flat_map(|one| [one.requests(), one.calls()]);
    let axis = Axis::counts(values.flatten().map(|value| value.min(AXIS_MAX)));
    let present = |name: &&str| counted().any(|one| one.entry.contestant.name == *name);
    let names = results.contestants.iter().map(|one| one.name.as_str());
    let mut text = marks::key(results, &names.filter(present).collect::<Vec<_>>());
    text += "<div class=\"lanes\">\n";
    text += &axis.lane("for each operation");
    for (line, counted) in &lines {
        text += &row(results, line, counted, &axis);
    }
    text + "</div>\n"
}

/// A contestant that was counted.
struct Counted<'a> {
    entry: &'a Entry<'a>,
    counts: &'a Counts,
}

impl<'a> Counted<'a> {
    fn of(entry: &'a Entry<'a>) -> Option<Counted<'a>> {
        let counts = entry.cell.counts.as_ref()?;
        Some(Counted { entry, counts })
    }

    fn requests(&self) -> Option<f64> {
        let requests: u64 = self.counts.requests.as_ref()?.values().sum();
        Some(requests as f64 / self.counts.operations.max(1) as f64)
    }

    fn calls(&self) -> Option<f64> {
        Some(self.counts.system_calls? as f64 / self.counts.operations.max(1) as f64)
    }

    /// `3 / 4.5`.
    fn short(&self) -> String {
        let text = |count: Option<u64>| {
            count.map_or("–".to_owned(), |count| {
                each(count, self.counts.operations)
            })
        };
        let requests = self.counts.requests.as_ref();
        let requests = text(requests.map(|requests| requests.values().sum()));
        format!("{requests} / {}", text(self.counts.system_calls))
    }

    /// By name.
    fn said(&self) -> String {
        let operations = self.counts.operations;
        let mut said: Vec<String> = Vec::new();
        match &self.counts.requests {
            Some(requests) if requests.values().all(|count| *count == 0) => {
                said.push("no request".to_owned());
            }
            Some(requests) => {
                let some = requests.iter().filter(|(_, count)| **count > 0);
                let some = some.map(|(name, count)| format!("{} {name}", each(*count, operations)));
                said.push(some.collect::<Vec<_>>().join(", "));
            }
            None => said.push("requests not counted".to_owned()),
        }
        if let Some(calls) = self.counts.system_calls {
            said.push(format!(
                "{} system calls of the server",
                each(calls, operations)
            ));
        }
        said.join("; ")
    }
}

fn row(results: &Results, line: &Line<'_>, counted: &[Counted<'_>], axis: &Axis) -> String {
    let height = counted.len() * PITCH;
    let (mut strip, mut figures) = (axis.lines(height), String::new());
    let mut about = line.label();
    for (place, one) in counted.iter().enumerate() {
        let name = &one.entry.contestant.name;
        let top = place * PITCH;
        let (class, said) = (marks::of(results, name).class, one.said());
        add!(about, "; {name}: {said}");
        add!(
            strip,
            "<g class=\"{class}\"><title>{}: {}</title>",
            Plain(name),
            Plain(&said)
        );
        let mut bar = |value: Option<f64>, y: usize, height: usize, class: &str| {
            let width = value.map_or(0.0, |value| axis.at(value) - axis.at(0.0));
            add!(
                strip,
                "<rect x=\"{:.2}%\" y=\"{y}\" width=\"{width:.2}%\" height=\"{height}\" class=\"{class}\"/>",
                axis.at(0.0)
            );
        };
        bar(one.requests(), top + 3, 7, "requests");
        bar(one.calls(), top + 11, 3, "calls");
        strip += "</g>";
        add!(
            figures,
            "<li title=\"{}\">{} {}</li>",
            Plain(&said),
            named(name),
            Plain(&one.short())
        );
    }
    let label = format!(
        "<span class=\"row\" title=\"{}\">{}</span>",
        Plain(&line.row.about),
        Plain(&line.label())
    );
    lane(&label, &about, height, &strip, &figures)
}

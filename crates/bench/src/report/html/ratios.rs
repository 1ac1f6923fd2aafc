//! Ratios to native: each row with a lane for each target, dot and whisker.

use super::lanes::{Axis, PITCH, lane};
use super::marks;
use super::page::{Plain, add};
use crate::report::figure;
use crate::report::table::{self, Entry, RowResult, Section, Verdict};
use crate::report::terminal::with_bar;
use crate::results::Results;

/// All rows of a section.
pub(super) fn all(results: &Results, section: &Section<'_>) -> String {
    let axis = Axis::ratios(section.lines.iter().flat_map(|line| {
        let ratios = line.entries.iter().filter_map(|entry| entry.ratio);
        ratios.flat_map(|ratio| [ratio.least, ratio.greatest])
    }));
    let names = table::each(section.lines.iter().flat_map(|line| {
        let entries = line.entries.iter().filter(|entry| entry.ratio.is_some());
        entries.map(|entry| entry.target.name.as_str())
    }));
    if names.is_empty() {
        return String::new();
    }
    // In the order of the targets, not of the rows.
    let order = results.targets.iter().map(|one| one.name.as_str());
    let names: Vec<&str> = order.filter(|name| names.contains(name)).collect();
    let mut text = marks::key(results, &names);
    text += "<div class=\"lanes\">\n";
    text += &axis.lane("times native");
    let mut group = None;
    for line in &section.lines {
        if group != Some(line.row.group) {
            group = Some(line.row.group);
            add!(text, "<h4>{}</h4>\n", table::heading(line.row.group));
        }
        text += &row(results, line, &axis);
    }
    text + "</div>\n"
}

fn row(results: &Results, line: &RowResult<'_>, axis: &Axis) -> String {
    let height = (line.entries.len().max(1)) * PITCH;
    let mut strip = axis.lines(height);
    let mut figures = String::new();
    let mut about = line.label();
    for (place, entry) in line.entries.iter().enumerate() {
        let y = place * PITCH + PITCH / 2;
        let name = &entry.target.name;
        let said = said(entry);
        add!(about, "; {name}: {said}");
        add!(strip, "{}", mark(results, entry, axis, y));
        add!(
            figures,
            "<li{}>{} {}</li>",
            best(entry),
            named(name),
            Plain(&short(entry))
        );
    }
    lane(&label(line), &about, height, &strip, &figures)
}

fn named(name: &str) -> String {
    format!("<span class=\"name\">{}</span>", Plain(name))
}

fn best(entry: &Entry<'_>) -> &'static str {
    if entry.best { " class=\"best\"" } else { "" }
}

/// The row's name, and what native does in it.
fn label(line: &RowResult<'_>) -> String {
    let mut text = format!(
        "<span class=\"row\" title=\"{}\">{}</span>",
        Plain(&line.row.about),
        Plain(&line.label())
    );
    if let Some(rate) = line.native.and_then(table::rate) {
        let rate = figure::rate(line.row, rate.median);
        add!(text, "<span class=\"rate\">native {}</span>", Plain(&rate));
    }
    text
}

/// A mark with its whisker.
fn mark(results: &Results, entry: &Entry<'_>, axis: &Axis, y: usize) -> String {
    let Some(ratio) = entry.ratio else {
        return String::new();
    };
    let marks::Mark { class, shape } = marks::of(results, &entry.target.name);
    format!(
        "<g class=\"{class}\"><title>{}: {}</title>\
         <line x1=\"{:.2}%\" x2=\"{:.2}%\" y1=\"{y}\" y2=\"{y}\" class=\"whisker\"/>\
         <use href=\"#{shape}\" x=\"{:.2}%\" y=\"{y}\"/></g>",
        Plain(&entry.target.name),
        Plain(&said(entry)),
        axis.at(ratio.least),
        axis.at(ratio.greatest),
        axis.at(ratio.median),
    )
}

/// A figure with its interval, in words.
fn said(entry: &Entry<'_>) -> String {
    let Some(ratio) = &entry.ratio else {
        return short(entry);
    };
    let [median, least, greatest] = [ratio.median, ratio.least, ratio.greatest].map(figure::times);
    let verdict = match Verdict::of(ratio) {
        Verdict::TooNoisy => ", too noisy to tell",
        Verdict::TooFew => ", too few rounds to tell",
        _ => "",
    };
    format!("{median} of native ({least} to {greatest}){verdict}")
}

fn short(entry: &Entry<'_>) -> String {
    match (&entry.ratio, &entry.cell.absence) {
        (Some(ratio), _) => match Verdict::of(ratio) {
            Verdict::TooNoisy | Verdict::TooFew => format!("{} ?", with_bar(ratio)),
            _ => with_bar(ratio),
        },
        (None, Some(absence)) if absence.failed => "failed".to_owned(),
        (None, Some(_)) => "absent".to_owned(),
        (None, None) => "–".to_owned(),
    }
}

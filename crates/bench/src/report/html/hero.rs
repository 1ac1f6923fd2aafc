//! The picture at the head: in each row, the best of ours and the best of others, and native's line.

use super::lanes::{Axis, lane};
use super::marks;
use super::page::{Plain, add};
use super::ratios::{mark, named, said};
use crate::report::figure;
use crate::report::table::{self, Entry, Line, Section};
use crate::results::{Group, Kind, Results};

/// Rows of a group that the picture shows.
const ROWS_MAX: usize = 12;
/// The bar of native's rate, in hundredths of its cell: figures stand beside it.
const FILL_MAX: f64 = 62.0;
/// Pixels of a lane.
const HEIGHT: usize = 26;

/// The section that people want to see first: a real disk rather than memory.
pub(super) fn section<'a, 'b>(sections: &'b [Section<'a>]) -> Option<&'b Section<'a>> {
    let mut all = sections.iter();
    all.find(|section| section.lower != "tmpfs")
        .or(sections.first())
}

/// The picture, and whether it leaves rows out.
pub(super) fn picture(results: &Results, section: &Section<'_>) -> Option<(String, bool)> {
    let lines = shown(section);
    let entries: Vec<(&Line<'_>, Vec<&Entry<'_>>)> =
        lines.iter().map(|line| (*line, pair(line))).collect();
    let ratios = entries.iter().flat_map(|(_, pair)| pair);
    let ratios: Vec<f64> = ratios
        .filter_map(|entry| entry.ratio)
        .flat_map(|ratio| [ratio.least, ratio.greatest])
        .collect();
    if ratios.is_empty() {
        return None;
    }
    let axis = Axis::ratios(ratios.into_iter());
    let names: Vec<&str> = {
        let present = |name: &str| {
            let mut all = entries.iter().flat_map(|(_, pair)| pair);
            all.any(|entry| entry.contestant.name == name)
        };
        let order = results.contestants.iter().map(|one| one.name.as_str());
        order.filter(|name| present(name)).collect()
    };
    let mut text = marks::key(results, &names);
    text += "<div class=\"lanes hero\">\n";
    text += &axis.lane("native");
    for (line, pair) in &entries {
        text += &row(results, line, pair, &axis);
    }
    text += "</div>\n";
    Some((text, lines.len() < section.lines.len()))
}

/// The first rows of each group, by the fewest jobs.
fn shown<'a, 'b>(section: &'b Section<'a>) -> Vec<&'b Line<'a>> {
    let mut shown: Vec<&Line<'_>> = Vec::new();
    for line in &section.lines {
        let is_there = shown.iter().any(|other| other.row.name == line.row.name);
        let in_group = |group: Group| {
            shown
                .iter()
                .filter(|other| other.row.group == group)
                .count()
        };
        if !is_there && in_group(line.row.group) < ROWS_MAX && !pair(line).is_empty() {
            shown.push(line);
        }
    }
    shown
}

/// The best of ours and the best of others; where neither is there, the floor.
fn pair<'a, 'b>(line: &'b Line<'a>) -> Vec<&'b Entry<'a>> {
    let kinds = [Kind::Other, Kind::Ours];
    let mut pair: Vec<&Entry<'_>> = kinds
        .iter()
        .filter_map(|kind| line.best_of(*kind))
        .collect();
    if pair.is_empty() {
        pair.extend(line.best_of(Kind::Floor));
    }
    pair
}

fn row(results: &Results, line: &Line<'_>, pair: &[&Entry<'_>], axis: &Axis) -> String {
    let middle = HEIGHT / 2;
    let mut strip = axis.lines(HEIGHT);
    if let [one, other] = pair
        && let (Some(one), Some(other)) = (one.ratio, other.ratio)
    {
        add!(
            strip,
            "<line x1=\"{:.2}%\" x2=\"{:.2}%\" y1=\"{middle}\" y2=\"{middle}\" class=\"span\"/>",
            axis.at(one.median),
            axis.at(other.median)
        );
    }
    let mut about = line.label();
    for entry in pair {
        add!(about, "; {}: {}", entry.contestant.name, said(entry));
        strip += &mark(results, entry, axis, middle);
    }
    // Ours is the last.
    let figures = pair.last().map_or(String::new(), |entry| {
        let ratio = entry
            .ratio
            .map_or(String::new(), |ratio| figure::times(ratio.median));
        format!(
            "<li>{} {}</li>",
            named(&entry.contestant.name),
            Plain(&ratio)
        )
    });
    lane(&label(line), &about, HEIGHT, &strip, &figures)
}

/// The row's name, and native's rate.
fn label(line: &Line<'_>) -> String {
    let rate = line.native.and_then(table::rate);
    let rate = rate.map_or(String::new(), |rate| figure::rate(line.row, rate.median));
    format!(
        "<span class=\"row\" title=\"{}\">{}</span><span class=\"rate\">{}</span>",
        Plain(&line.row.about),
        Plain(&line.label()),
        Plain(&rate)
    )
}

/// Everybody in a line: the geometric mean of the ratios in each group.
pub(super) fn at_a_glance(results: &Results, section: &Section<'_>) -> String {
    let groups = table::each(section.lines.iter().map(|line| line.row.group));
    let contestants = results.contestants.iter().skip(1);
    let contestants: Vec<&str> = contestants
        .filter(|one| one.kind != Kind::Floor)
        .map(|one| one.name.as_str())
        .filter(|name| section.lines.iter().any(|line| ratio(line, name).is_some()))
        .collect();
    let mut head = vec!["Mount"];
    head.extend(groups.iter().map(|group| table::heading(*group)));
    head.push("best in");
    let mut lines = String::new();
    for name in &contestants {
        add!(
            lines,
            "<tr><th scope=\"row\">{} {}</th>",
            marks::alone(marks::of(results, name)),
            Plain(name)
        );
        for group in &groups {
            let mean = mean(section, *group, name, &contestants);
            lines += &mean.map_or("<td>–</td>".to_owned(), |mean| {
                format!(
                    "<td class=\"share\"><span class=\"fill\" style=\"width:{:.1}%\"></span>\
                     <span class=\"over\">{}</span></td>",
                    FILL_MAX * mean.min(1.0),
                    figure::times(mean)
                )
            });
        }
        let is_best = |line: &&Line<'_>| line.entry(name).is_some_and(|entry| entry.best);
        let best = section.lines.iter().filter(is_best).count();
        add!(lines, "<td>{best} of {}</td></tr>\n", section.lines.len());
    }
    if lines.is_empty() {
        return String::new();
    }
    let caption = "Geometric mean of the ratios to native, over the rows that all of these have; and in \
                   how many rows nobody is told to be better. Bars end at 1";
    super::page::table(caption, &head, &lines)
}

fn ratio(line: &Line<'_>, name: &str) -> Option<f64> {
    Some(line.entry(name)?.ratio?.median)
}

/// Over the rows that all of them have.
fn mean(section: &Section<'_>, group: Group, name: &str, all: &[&str]) -> Option<f64> {
    let of_group = |line: &&Line<'_>| line.row.group == group;
    // Whoever has no row of this group cannot keep the others from being compared.
    let present = |other: &&&str| {
        let mut lines = section.lines.iter().filter(of_group);
        lines.any(|line| ratio(line, other).is_some())
    };
    let present: Vec<&&str> = all.iter().filter(present).collect();
    let shared = section.lines.iter().filter(of_group).filter(|line| {
        let mut names = present.iter();
        names.all(|other| ratio(line, other).is_some())
    });
    let logarithms: Vec<f64> = shared
        .filter_map(|line| Some(ratio(line, name)?.ln()))
        .collect();
    let count = logarithms.len() as f64;
    (count > 0.0).then(|| (logarithms.iter().sum::<f64>() / count).exp())
}

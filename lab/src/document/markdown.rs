//! Tables of documents.

use super::derived::{self, Against, Comparison, Met, comparisons};
use thrufs_bench::Outcome;
use thrufs_bench::report::figure;
use thrufs_bench::report::table::{self, Entry, RowResult, Section, Verdict, sections};
use thrufs_bench::results::statistics::Middle;
use thrufs_bench::results::{Cell, Results};

type Table = fn(&Results) -> String;

const TABLES: [(&str, Table); 3] = [("ratios", ratios), ("rates", rates), ("costs", costs)];

/// In place of a missing figure.
pub(super) const NONE: &str = "–";

/// The table of that name.
pub(super) fn named(name: &str) -> Outcome<Table> {
    let found = TABLES.iter().find(|(table, _)| *table == name);
    found.map(|(_, table)| *table).ok_or_else(|| {
        let names: Vec<&str> = TABLES.iter().map(|(name, _)| *name).collect();
        format!("there is no table {name}; there are {}", names.join(", "))
    })
}

/// A table in Markdown.
pub(super) struct Grid {
    text: String,
    columns: usize,
}

impl Grid {
    pub(super) fn new(head: &[String]) -> Grid {
        let mut grid = Grid {
            text: String::new(),
            columns: head.len(),
        };
        grid.line(head);
        grid.text += &format!("|{}\n", "---|".repeat(head.len()));
        grid
    }

    pub(super) fn line(&mut self, cells: &[String]) {
        debug_assert_eq!(cells.len(), self.columns);
        let cells: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
        self.text += &format!("| {} |\n", cells.join(" | "));
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// Text from results can neither end a cell nor begin a tag.
pub(super) fn plain(text: &str) -> String {
    let text = text.replace('|', "\\|").replace('<', "&lt;");
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// One table for each file system beneath and number of jobs, made by `of`.
fn each(results: &Results, of: impl Fn(&str, &[&RowResult<'_>]) -> String) -> String {
    let sections = sections(results);
    let mut tables = Vec::new();
    for section in &sections {
        let mut jobs = table::each(section.lines.iter().map(|line| line.jobs));
        jobs.sort_unstable();
        for jobs in jobs {
            let lines = section.lines.iter().filter(|line| line.jobs == jobs);
            let corner = corner(section, jobs);
            tables.push(of(&corner, &lines.collect::<Vec<_>>()));
        }
    }
    tables.retain(|table| !table.is_empty());
    tables.join("\n")
}

/// The title of the first column.
fn corner(section: &Section<'_>, jobs: u32) -> String {
    match jobs {
        1 => format!("{} below", section.lower),
        _ => format!("{} below, {jobs} jobs", section.lower),
    }
}

/// The targets with a cell in one of the lines, in their order, without native.
fn present<'a>(results: &'a Results, lines: &[&RowResult<'_>]) -> Vec<&'a str> {
    let names = results.targets.iter().map(|one| one.name.as_str());
    let has = |name: &&str| lines.iter().any(|line| line.entry(name).is_some());
    names.filter(has).collect()
}

fn native(line: &RowResult<'_>) -> String {
    let rate = line.native.and_then(table::rate);
    rate.map_or(NONE.to_owned(), |rate| figure::rate(line.row, rate.median))
}

/// `0.912 [0.740 to 0.969]`.
pub(super) fn with_interval(middle: &Middle) -> String {
    let [median, least, greatest] = figure::precise(middle);
    format!("{median} [{least} to {greatest}]")
}

fn absent(cell: &Cell) -> String {
    match &cell.absence {
        Some(absence) if absence.failed => "**failed**".to_owned(),
        Some(_) => "not there".to_owned(),
        None => NONE.to_owned(),
    }
}

/// Ratios to native, with the interval; then comparisons between targets.
fn ratios(results: &Results) -> String {
    each(results, |corner, lines| {
        let names = present(results, lines);
        let columns = columns(lines);
        let mut head = vec![corner.to_owned(), "native".to_owned()];
        head.extend(names.iter().map(|name| (*name).to_owned()));
        head.extend(titles(&columns));
        let mut grid = Grid::new(&head);
        for line in lines {
            let mut cells = vec![line.row.name.clone(), native(line)];
            let found = comparisons(line);
            cells.extend(names.iter().map(|name| ratio(line.entry(name), &found)));
            cells.extend(compared(line, &columns));
            grid.line(&cells);
        }
        grid.text
    })
}

/// Marked if it misses the row's own goal.
fn ratio(entry: Option<&Entry<'_>>, comparisons: &[Comparison<'_>]) -> String {
    let Some(entry) = entry else {
        return NONE.to_owned();
    };
    let Some(ratio) = &entry.ratio else {
        return absent(entry.cell);
    };
    let text = with_interval(ratio);
    let mut own = comparisons.iter();
    let own = own.find(|one| one.against.is_with_native() && one.subject == entry.target.name);
    own.map_or(text.clone(), |one| marked(&text, one))
}

/// Marks a missed goal, and without a goal a loss.
fn marked(text: &str, one: &Comparison<'_>) -> String {
    match one.met() {
        Some(Met::No | Met::Barely) => format!("{text} **missed**"),
        None => marked_if_slower(text, &one.times),
        Some(Met::Yes) => text.to_owned(),
    }
}

/// A whole interval below 1 is marked.
pub(super) fn marked_if_slower(text: &str, ratio: &Middle) -> String {
    match Verdict::of(ratio) {
        Verdict::Slower => format!("{text} **slower**"),
        _ => text.to_owned(),
    }
}

/// The comparisons that have a column of their own: kind and subject.
fn columns(lines: &[&RowResult<'_>]) -> Vec<(Against, String)> {
    let all = lines.iter().flat_map(|line| comparisons(line));
    let mut columns = table::each(all.map(|one| (one.against, one.subject.to_owned())));
    columns.retain(|(against, _)| !against.is_with_native());
    columns
}

/// The cells of such columns.
fn compared(line: &RowResult<'_>, columns: &[(Against, String)]) -> Vec<String> {
    let found = comparisons(line);
    let cell = |(against, subject): &(Against, String)| {
        let mut found = found.iter();
        let one = found.find(|one| one.against == *against && one.subject == subject);
        one.map_or(NONE.to_owned(), |one| {
            marked(&figure::times(one.times.median), one)
        })
    };
    columns.iter().map(cell).collect()
}

fn titles(columns: &[(Against, String)]) -> impl Iterator<Item = String> {
    columns
        .iter()
        .map(|(against, subject)| derived::column_title(*against, subject))
}

/// Median rates: rows down, targets and jobs across.
fn rates(results: &Results) -> String {
    let sections = sections(results);
    let tables = sections.iter().map(|section| {
        let cells = || {
            let lines = section.lines.iter();
            lines.flat_map(|line| {
                let entries = line.entries.iter().map(|entry| entry.cell);
                line.native.into_iter().chain(entries)
            })
        };
        let mut jobs = table::each(section.lines.iter().map(|line| line.jobs));
        jobs.sort_unstable();
        let names = results.targets.iter().map(|one| one.name.as_str());
        let names = names.filter(|name| cells().any(|cell| cell.target == *name));
        let all: Vec<&RowResult<'_>> = section.lines.iter().collect();
        // With several jobs there are too many columns.
        let derived = if jobs.len() == 1 {
            columns(&all)
        } else {
            Vec::new()
        };
        let columns: Vec<(&str, u32)> = names
            .flat_map(|name| jobs.iter().map(move |jobs| (name, *jobs)))
            .collect();
        let mut head = vec![format!("{} below, rates", section.lower)];
        head.extend(columns.iter().map(|(name, count)| match jobs.len() {
            1 => (*name).to_owned(),
            _ => format!("{name} × {count}"),
        }));
        head.extend(titles(&derived));
        let mut grid = Grid::new(&head);
        for row in &results.rows {
            let of_row: Vec<&Cell> = cells().filter(|cell| cell.row == row.name).collect();
            if of_row.is_empty() {
                continue;
            }
            let mut line = vec![row.name.clone()];
            line.extend(columns.iter().map(|(name, jobs)| {
                let is_it = |cell: &&&Cell| cell.target == *name && cell.jobs == *jobs;
                let Some(cell) = of_row.iter().find(is_it) else {
                    return NONE.to_owned();
                };
                let rate = table::rate(cell);
                rate.map_or_else(|| absent(cell), |rate| figure::rate(row, rate.median))
            }));
            let of_row = all.iter().find(|line| line.row.name == row.name);
            line.extend(of_row.map_or(Vec::new(), |line| compared(line, &derived)));
            grid.line(&line);
        }
        grid.text
    });
    tables.collect::<Vec<_>>().join("\n")
}

/// Requests and system calls per operation.
fn costs(results: &Results) -> String {
    each(results, |corner, lines| {
        let mut names = present(results, lines);
        let counts = |line: &RowResult<'_>, name: &str| line.entry(name)?.cell.counts.clone();
        names.retain(|name| lines.iter().any(|line| counts(line, name).is_some()));
        if names.is_empty() {
            return String::new();
        }
        let mut head = vec![corner.to_owned()];
        head.extend(
            names
                .iter()
                .map(|name| format!("{name}: requests / system calls")),
        );
        let mut grid = Grid::new(&head);
        for line in lines {
            let mut cells = vec![line.row.name.clone()];
            cells.extend(names.iter().map(|name| {
                counts(line, name).map_or(NONE.to_owned(), |counts| figure::cost(&counts))
            }));
            grid.line(&cells);
        }
        grid.text
    })
}

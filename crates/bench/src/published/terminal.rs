//! Published comparisons for the terminal: of each line what was published and, below it, what was found here.

use crate::results::published::{Column, Line, Pair, Published};
use std::fmt::Write;

/// Characters for one column's figure with its ratio.
const COLUMN: usize = 16;
/// Characters before the first column.
const HEAD: usize = 12;
/// Most characters of a line of prose.
const PROSE: usize = 80;

/// Tables of these comparisons, with their sources; no line is longer than 80 characters, but for addresses.
#[must_use]
pub fn terminal(published: &[Published]) -> String {
    let mut text = String::new();
    for comparison in published {
        text.push('\n');
        write_one(&mut text, comparison);
    }
    text
}

/// Writing into a string does not fail.
fn write_one(text: &mut String, comparison: &Published) {
    let _ = writeln!(text, "{}, published and here", comparison.title);
    for source in &comparison.sources {
        let said = format!("{}: {} ({})", source.author, source.title, source.date);
        prose(text, &said);
        prose(text, &source.place);
    }
    let _ = writeln!(text);
    let names = comparison
        .columns
        .iter()
        .map(|column| column.original.as_str());
    row(text, "published", names);
    let names = comparison.columns.iter();
    let names = names.map(Column::name_here);
    row(text, "here", names);
    let is_here = |line: &&Line| line.pairs.iter().any(|pair| pair.here.is_some());
    let shown: Vec<&Line> = comparison.lines.iter().filter(is_here).collect();
    for line in &shown {
        write_line(text, line);
    }
    let others = comparison.lines.len() - shown.len();
    if others > 0 {
        let _ = writeln!(
            text,
            "({others} more lines were published and not measured here)"
        );
    }
    let _ = writeln!(text);
    prose(text, &format!("Published with: {}", comparison.original));
    for sentence in comparison.differences.iter().chain(&comparison.missing) {
        prose(text, sentence);
    }
}

fn write_line(text: &mut String, line: &Line) {
    let jobs = match line.jobs {
        1 => String::new(),
        jobs => format!(", {jobs} at once"),
    };
    let _ = writeln!(text, "{}{jobs}, {}", line.what, line.unit.symbol());
    let cells = |of: fn(&Pair) -> (Option<f64>, Option<f64>)| {
        line.pairs.iter().enumerate().map(move |(at, pair)| {
            let (figure, ratio) = of(pair);
            cell(figure, ratio.filter(|_| at > 0))
        })
    };
    row(
        text,
        "published",
        cells(|pair| (pair.original, pair.original_ratio)),
    );
    row(text, "here", cells(|pair| (pair.here, pair.here_ratio)));
}

fn row<T: AsRef<str>>(text: &mut String, head: &str, cells: impl Iterator<Item = T>) {
    let mut line = format!("  {head:<width$}", width = HEAD - 2);
    for cell in cells {
        let cell: String = cell.as_ref().chars().take(COLUMN - 1).collect();
        let _ = write!(line, "{cell:<COLUMN$}");
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

/// A figure, and how many times as fast as the first column it is.
pub(super) fn cell(figure: Option<f64>, ratio: Option<f64>) -> String {
    let Some(figure) = figure else {
        return "-".to_owned();
    };
    let figure = number(figure);
    match ratio {
        Some(ratio) => format!("{figure} {ratio:.2}x"),
        None => figure,
    }
}

/// Three digits or more, with no more of them behind the point than say something.
pub(crate) fn number(figure: f64) -> String {
    let digits = match figure.abs() {
        0.0..1.0 => 3,
        1.0..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{figure:.digits$}")
}

/// In lines of no more than so many characters, indented but for the first.
fn prose(text: &mut String, sentence: &str) {
    let mut line = String::new();
    let mut indent = "";
    for word in sentence.split_whitespace() {
        if !line.is_empty() && line.chars().count() + word.chars().count() + 3 > PROSE {
            let _ = writeln!(text, "{indent}{line}");
            (line, indent) = (String::new(), "  ");
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(text, "{indent}{line}");
}

//! What others have published, beside what was found here, in Markdown.

use super::markdown::{Grid, NONE, plain};
use crate::Outcome;
use crate::published::{named, number};
use crate::results::Results;
use crate::results::published::{Column, Line, Pair, Published, Unit};
use std::fmt::Write;

/// The comparison of that name; nothing where the run has nothing for it.
pub(super) fn beside(results: &Results, name: &str) -> Outcome<String> {
    Ok(named(results, name)?.map_or(String::new(), |one| text(&one)))
}

/// Writing into a string does not fail.
fn text(one: &Published) -> String {
    let mut text = String::new();
    for source in &one.sources {
        let _ = writeln!(
            text,
            "{}, *{}*, {}: {}.\n",
            plain(&source.author),
            plain(&source.title),
            source.date,
            plain(&source.place)
        );
    }
    text += &table(one);
    let left_out = one.lines.len() - shown(one).count();
    if left_out > 0 {
        let _ = writeln!(
            text,
            "\n{left_out} more lines were published and not measured here."
        );
    }
    let _ = writeln!(
        text,
        "\nPublished with: {} Different here:\n",
        plain(&one.original)
    );
    for sentence in one.differences.iter().chain(&one.missing) {
        let _ = writeln!(text, "* {}", plain(sentence));
    }
    text
}

/// Lines for which there is a figure of ours.
fn shown(one: &Published) -> impl Iterator<Item = &Line> {
    let is_here = |line: &&Line| line.pairs.iter().any(|pair| pair.here.is_some());
    one.lines.iter().filter(is_here)
}

/// Each column of the original once, and behind it all of ours that stand for it.
fn table(one: &Published) -> String {
    let columns = &one.columns;
    let is_new = |at: usize| at == 0 || columns[at].original != columns[at - 1].original;
    let mut head = vec![one.title.clone()];
    for (at, column) in columns.iter().enumerate() {
        if is_new(at) {
            head.push(format!("{}, published", column.original));
        }
        head.push(here(column));
    }
    let mut grid = Grid::new(&head);
    for line in shown(one) {
        let mut cells = vec![what(line)];
        for (at, (pair, column)) in line.pairs.iter().zip(columns).enumerate() {
            let is_base = at == 0;
            if is_new(at) {
                cells.push(published(pair, is_base));
            }
            cells.push(found(pair, column, is_base));
        }
        grid.line(&cells);
    }
    grid.finished()
}

fn here(column: &Column) -> String {
    match &column.here {
        Some(name) => format!("here: {name}"),
        None => "here".to_owned(),
    }
}

fn what(line: &Line) -> String {
    let jobs = match line.jobs {
        1 => String::new(),
        jobs => format!(", {jobs} at once"),
    };
    let unit = match line.unit {
        Unit::PerSecond => "per second",
        unit => unit.symbol(),
    };
    format!("{}{jobs}, {unit}", line.what)
}

/// `26200 (1.04)`.
fn published(pair: &Pair, is_base: bool) -> String {
    match (pair.original, pair.original_ratio) {
        (None, _) => NONE.to_owned(),
        (Some(figure), Some(ratio)) if !is_base => format!("{} ({ratio:.2})", number(figure)),
        (Some(figure), _) => number(figure),
    }
}

/// `26200 (1.04 [0.98 to 1.10])`.
fn found(pair: &Pair, column: &Column, is_base: bool) -> String {
    let Some(figure) = pair.here else {
        return match column.here {
            Some(_) => NONE.to_owned(),
            None => column.absent.clone(),
        };
    };
    let figure = number(figure);
    match (pair.here_ratio, pair.here_interval) {
        (Some(ratio), Some([least, greatest])) if !is_base && least < greatest => {
            format!("{figure} ({ratio:.2} [{least:.2} to {greatest:.2}])")
        }
        // Of one round.
        (Some(ratio), _) if !is_base => format!("{figure} ({ratio:.2})"),
        _ => figure,
    }
}

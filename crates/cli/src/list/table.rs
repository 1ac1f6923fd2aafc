//! Tables as text: columns of a limited width, and lines beneath for what fits into none.

use super::entry::{Entry, State};

/// Of a line of the list.
pub(super) const WIDTH: usize = 100;

/// A column, and whether it is aligned to the right.
pub(super) type Column = (&'static str, bool);

const COLUMNS: [Column; 9] = [
    ("TARGET", false),
    ("SOURCE", false),
    ("STATE", false),
    ("VIA", false),
    ("PASS", false),
    ("CACHE", false),
    ("WORKER", true),
    ("AGE", true),
    ("REQUESTS", true),
];

/// The least that is left of a path.
const PATH_MIN: usize = 8;

/// The cells of a line, and lines beneath.
pub(super) type Row = (Vec<String>, String);

pub(super) fn of(entries: &[Entry], rates: bool, width: usize) -> String {
    let mut columns = COLUMNS;
    if rates {
        columns[8].0 = "REQ/S";
    }
    let rows = entries
        .iter()
        .map(|entry| (cells(entry, rates), notes(entry)));
    aligned(&columns, &rows.collect::<Vec<_>>(), 2, width)
}

/// A table of at most so many characters in a line. The first columns are `paths`, which are shortened where a line is
/// too long.
pub(super) fn aligned(columns: &[Column], rows: &[Row], paths: usize, width: usize) -> String {
    let mut widths: Vec<usize> = columns.iter().map(|(name, _)| name.len()).collect();
    for (cells, _) in rows {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    shrink(&mut widths, paths, width);
    let names: Vec<_> = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut text = line(&names, &widths, columns);
    for (cells, notes) in rows {
        text += &line(cells, &widths, columns);
        text += notes;
    }
    text
}

/// Takes what is too much from the longest path.
fn shrink(widths: &mut [usize], paths: usize, most: usize) {
    let gaps = widths.len() - 1;
    while widths.iter().sum::<usize>() + gaps > most {
        let longest = widths[..paths].iter_mut().max();
        match longest {
            Some(width) if *width > PATH_MIN => *width -= 1,
            _ => return,
        }
    }
}

fn line(cells: &[String], widths: &[usize], columns: &[Column]) -> String {
    let all = cells.iter().zip(widths).zip(columns);
    let all = all.map(|((cell, width), (_, to_the_right))| {
        let cell = shortened(cell, *width);
        match to_the_right {
            true => format!("{cell:>width$}"),
            false => format!("{cell:width$}"),
        }
    });
    all.collect::<Vec<_>>().join(" ").trim_end().to_owned() + "\n"
}

/// The end of a path says most.
fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let end: String = text.chars().skip(length - width + 1).collect();
    format!("…{end}")
}

fn cells(entry: &Entry, rates: bool) -> Vec<String> {
    let dash = || "-".to_owned();
    let cache = entry.cache.as_ref().map(|mode| {
        let followed = match entry.follow {
            Some("filesystem") => ",fs",
            Some(_) => ",dirs",
            None => "",
        };
        let writeback = if entry.writeback { ",wb" } else { "" };
        format!("{mode}{followed}{writeback}")
    });
    let worker = match &entry.workers[..] {
        [] => dash(),
        [one] => one.to_string(),
        [first, rest @ ..] => format!("{first}+{}", rest.len()),
    };
    let requests = match rates {
        true => entry.requests_per_s.map(|rate| format!("{rate:.0}")),
        false => entry.requests.map(|count| count.to_string()),
    };
    vec![
        entry.place.clone(),
        entry.source.clone().unwrap_or_else(dash),
        state(entry).to_owned(),
        entry.transport.unwrap_or("-").to_owned(),
        entry
            .passthrough
            .map_or_else(dash, |it| if it { "yes" } else { "no" }.to_owned()),
        cache.unwrap_or_else(dash),
        worker,
        entry.age_s.map_or_else(dash, age),
        requests.unwrap_or_else(dash),
    ]
}

pub(super) fn state(entry: &Entry) -> &'static str {
    match entry.state {
        State::Serving => "serving",
        State::Silent => "silent",
        State::Running => "running",
        State::Dead => "dead",
        State::Unknown => "unknown",
    }
}

/// One number and a unit.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn notes(entry: &Entry) -> String {
    let mut text = String::new();
    if entry.elsewhere_count > 0 {
        let of = entry.elsewhere.iter().map(|it| match it.processes {
            1 => format!("{} ({})", it.process, it.name),
            count => format!("{} ({}, and {} more)", it.process, it.name, count - 1),
        });
        let of = of.collect::<Vec<_>>().join(", ");
        let more = match entry.elsewhere_count - entry.elsewhere.len() {
            0 => String::new(),
            more => format!(", and {more} others"),
        };
        let also = if entry.is_mounted_here { "also " } else { "" };
        text += &format!("  {also}in the mount namespace of process {of}{more}\n");
    }
    if let Some(remedy) = &entry.remedy {
        text += &format!("  do: {remedy}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shortened_where_a_line_is_too_long() {
        let mut widths = [90, 60, 7, 10, 4, 9, 7, 4, 8];
        shrink(&mut widths, 2, WIDTH);
        assert_eq!(widths.iter().sum::<usize>() + 8, WIDTH);
        assert!(widths[0].abs_diff(widths[1]) <= 1, "{widths:?}");
        assert_eq!(shortened("/a/long/path", 6), "…/path");
        assert_eq!(shortened("/päth", 5), "/päth");
        let mut fits = [20; 9];
        fits[2..].fill(5);
        shrink(&mut fits, 2, WIDTH);
        assert_eq!(fits[..2], [20, 20]);
    }

    #[test]
    fn ages_have_one_unit() {
        let ages = [0, 59, 60, 3599, 3600, 172_799, 172_800].map(age);
        assert_eq!(ages, ["0s", "59s", "1m", "59m", "1h", "47h", "2d"]);
    }
}

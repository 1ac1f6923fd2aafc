//! The list as text: columns of at most 100 characters, and lines beneath for what fits into none.

use super::entry::{Entry, State};

/// Of a line of the table.
const WIDTH: usize = 100;

/// Columns, and whether they are aligned to the right. The first two are shortened where a line is too long.
const COLUMNS: [(&str, bool); 9] = [
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

pub(super) fn of(entries: &[Entry], rates: bool) -> String {
    let mut names = COLUMNS.map(|(name, _)| name.to_owned());
    if rates {
        names[8] = "REQ/S".to_owned();
    }
    let rows: Vec<_> = entries.iter().map(|entry| cells(entry, rates)).collect();
    let mut widths = names.each_ref().map(|name| name.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    shrink(&mut widths);
    let mut text = line(&names, &widths);
    for (entry, row) in entries.iter().zip(&rows) {
        text += &line(row, &widths);
        text += &notes(entry);
    }
    text
}

/// Takes what is too much from the longer of the two paths.
fn shrink(widths: &mut [usize; 9]) {
    let gaps = widths.len() - 1;
    while widths.iter().sum::<usize>() + gaps > WIDTH {
        let longer = usize::from(widths[1] > widths[0]);
        if widths[longer] <= PATH_MIN {
            return;
        }
        widths[longer] -= 1;
    }
}

fn line(cells: &[String; 9], widths: &[usize; 9]) -> String {
    let all = cells.iter().zip(widths).zip(COLUMNS);
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

fn cells(entry: &Entry, rates: bool) -> [String; 9] {
    let dash = || "-".to_owned();
    let state = match entry.state {
        State::Serving => "serving",
        State::Silent => "silent",
        State::Running => "running",
        State::Dead => "dead",
        State::Unknown => "unknown",
    };
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
    [
        entry.place.clone(),
        entry.source.clone().unwrap_or_else(dash),
        state.to_owned(),
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
        shrink(&mut widths);
        assert_eq!(widths.iter().sum::<usize>() + 8, WIDTH);
        assert!(widths[0].abs_diff(widths[1]) <= 1, "{widths:?}");
        assert_eq!(shortened("/a/long/path", 6), "…/path");
        assert_eq!(shortened("/päth", 5), "/päth");
        let mut fits = [20; 9];
        fits[2..].fill(5);
        shrink(&mut fits);
        assert_eq!(fits[..2], [20, 20]);
    }

    #[test]
    fn ages_have_one_unit() {
        let ages = [0, 59, 60, 3599, 3600, 172_799, 172_800].map(age);
        assert_eq!(ages, ["0s", "59s", "1m", "59m", "1h", "47h", "2d"]);
    }
}

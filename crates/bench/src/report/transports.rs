//! The tables of a comparison of transports: ratios to native, ours over io_uring against ours over
//! `/dev/fuse` and against libfuse's better transport, and how far from the floor; at the end, all
//! rates.

use super::{Line, Rows, corner};
use crate::figures::{NOT_COMPARED, Series, middle};
use crate::row::Row;
use std::fmt::Write;

/// What a reader has to know before the table.
pub(super) const LEGEND: &str = "\
uring / dev: thrufs-uring over thrufs-dev; uring / libfuse best: over the better of libfuse and \
libfuse-uring in this row; medians of the rounds' ratios.
time / (floor + native): time of an operation by thrufs-uring over the sum of the floor's and \
native's; the goal is 1.15 at most.
floor: a server that answers from constants, one thread, pinned to one CPU together with the client \
process (CPU 0; with more jobs, each job and a floor of its own on a CPU of their own).
";

/// Rows in which every operation has to reach the server.
const METADATA: &[&str] = &["stat-cold", "open-close", "create", "unlink", "rename"];
/// The project's goal for them.
const TIMES_FLOOR_AND_NATIVE_MAX: f64 = 1.15;

pub(super) fn line(lower: &str, jobs: usize, row: &Row, rows: &Rows<'_>) -> Option<Line> {
    let native = rows.named("native")?;
    let mut line = Line::default();
    line.add(corner(lower, jobs), row.name);
    line.add("native", native.rate());
    for series in rows.0.iter().filter(|series| series.contestant != "native") {
        line.add(series.contestant, series.ratio_to(native));
    }
    let ours = rows.named("thrufs-uring")?;
    let against =
        |peer: Option<&Series>| peer.map_or(NOT_COMPARED.to_owned(), |peer| ours.against(peer));
    line.add("uring / dev", against(rows.named("thrufs-dev")));
    line.add(
        "uring / libfuse best",
        against(best(rows.starting("libfuse"))),
    );
    let over = if METADATA.contains(&row.name) {
        times_floor_and_native(ours, floor(rows), native)
    } else {
        None
    };
    line.add(
        "time / (floor + native)",
        over.map_or(NOT_COMPARED.to_owned(), verdict),
    );
    Some(line)
}

/// The one with the greatest median rate.
fn best<'a>(peers: impl Iterator<Item = &'a Series>) -> Option<&'a Series> {
    peers
        .filter_map(|peer| Some((peer.median_per_second()?, peer)))
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, peer)| peer)
}

/// Over the same transport, where there is one.
fn floor<'a>(rows: &Rows<'a>) -> Option<&'a Series> {
    rows.named("floor-uring")
        .or_else(|| rows.named("floor-dev"))
}

/// Median of the rounds: time of an operation, over what protocol and work cost at least.
fn times_floor_and_native(ours: &Series, floor: Option<&Series>, native: &Series) -> Option<f64> {
    let least = floor?.samples.iter().zip(&native.samples);
    let rounds = ours.samples.iter().zip(least);
    let times = rounds.map(|(ours, (floor, native))| ours.time() / (floor.time() + native.time()));
    Some(middle(times.collect())?.median)
}

fn verdict(times: f64) -> String {
    let over = if times > TIMES_FLOOR_AND_NATIVE_MAX {
        " **over**"
    } else {
        ""
    };
    format!("{times:.2}{over}")
}

/// Rows down, contestants and jobs across, median rates: a table for each file system beneath.
pub(super) fn rates(all: &[Series]) -> String {
    let mut text = String::new();
    for lower in each(all, |series| series.lower) {
        let beneath: Vec<&Series> = all.iter().filter(|series| series.lower == lower).collect();
        let jobs = each(beneath.iter().copied(), |series| series.jobs);
        let contestants = each(beneath.iter().copied(), |series| series.contestant);
        let mut head = None;
        for row in each(beneath.iter().copied(), |series| series.row.name) {
            let mut line = Line::default();
            line.add(format!("{lower} below, rates"), row);
            for contestant in &contestants {
                for &jobs in &jobs {
                    let one = beneath.iter().find(|series| {
                        (series.row.name, series.contestant, series.jobs)
                            == (row, *contestant, jobs)
                    });
                    let rate = one.map_or(NOT_COMPARED.to_owned(), |series| series.rate());
                    line.add(format!("{contestant} × {jobs}"), rate);
                }
            }
            if head.is_none() {
                head = Some(line.head());
                text.push_str(&line.head());
            }
            text.push_str(&line.text());
        }
    }
    let _ = writeln!(text);
    text
}

/// Each value once, in the order in which they come.
fn each<'a, T: PartialEq>(
    all: impl IntoIterator<Item = &'a Series>,
    value: impl Fn(&'a Series) -> T,
) -> Vec<T> {
    let mut values = Vec::new();
    for series in all {
        let value = value(series);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::{Rows, line, rates};
    use crate::figures::{Sample, Series};
    use crate::row;

    /// Thrice the same time for an operation, in nanoseconds; none for what is not there.
    fn series(name: &'static str, jobs: usize, time: Option<u64>) -> Series {
        let sample = |nanoseconds| Sample {
            operations: 1,
            nanoseconds,
        };
        Series {
            lower: "tmpfs",
            jobs,
            row: row::named("create").unwrap(),
            contestant: name,
            samples: time.map_or(Vec::new(), |time| vec![sample(time); 3]),
            not_there: time.is_none().then(|| "no reason".to_owned()),
            failed: None,
        }
    }

    fn cells(series: &[Series]) -> Vec<(String, String)> {
        let rows = Rows(series.iter().collect());
        let line = line("tmpfs", 1, series[0].row, &rows).unwrap();
        line.heading.into_iter().zip(line.cells).collect()
    }

    fn cell(cells: &[(String, String)], heading: &str) -> String {
        let found = cells.iter().find(|(name, _)| name == heading);
        found.unwrap().1.clone()
    }

    #[test]
    fn ours_is_compared_with_the_better_peer_and_the_floor() {
        let mut all = vec![
            series("native", 1, Some(2_000)),
            series("thrufs-dev", 1, Some(20_000)),
            series("thrufs-uring", 1, Some(10_000)),
            series("libfuse", 1, Some(9_000)),
            series("libfuse-uring", 1, Some(30_000)),
            series("floor-dev", 1, Some(6_000)),
        ];
        let seen = cells(&all);
        assert_eq!(cell(&seen, "native"), "500 k/s");
        assert_eq!(cell(&seen, "thrufs-uring"), "0.200 [0.200 to 0.200]");
        assert_eq!(cell(&seen, "uring / dev"), "2.00");
        assert_eq!(cell(&seen, "uring / libfuse best"), "0.90 **slower**");
        assert_eq!(cell(&seen, "time / (floor + native)"), "1.25 **over**");
        // A floor over the same transport is the one that counts.
        all.push(series("floor-uring", 1, Some(8_000)));
        assert_eq!(cell(&cells(&all), "time / (floor + native)"), "1.00");
    }

    #[test]
    fn what_is_not_there_is_neither_compared_nor_the_best() {
        let all = [
            series("native", 1, Some(2_000)),
            series("thrufs-uring", 1, Some(10_000)),
            series("libfuse", 1, None),
            series("libfuse-uring", 1, Some(20_000)),
            series("floor-dev", 1, None),
        ];
        let seen = cells(&all);
        assert_eq!(cell(&seen, "libfuse"), "not there");
        assert_eq!(cell(&seen, "uring / dev"), "–");
        assert_eq!(cell(&seen, "uring / libfuse best"), "2.00");
        assert_eq!(cell(&seen, "time / (floor + native)"), "–");
    }

    #[test]
    fn rates_stand_by_contestant_and_jobs() {
        let all = [
            series("native", 1, Some(1_000)),
            series("thrufs-dev", 1, Some(10_000)),
            series("native", 2, Some(500)),
            series("thrufs-dev", 2, None),
        ];
        let text = rates(&all);
        let lines: Vec<&str> = text.trim().lines().collect();
        assert_eq!(
            lines,
            [
                "| tmpfs below, rates | native × 1 | native × 2 | thrufs-dev × 1 | thrufs-dev × 2 |",
                "|---|---|---|---|---|",
                "| create | 1000 k/s | 2000 k/s | 100 k/s | not there |"
            ]
        );
    }
}

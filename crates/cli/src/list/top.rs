//! `thrufs top`: what mounts and shares do, by the figures that their servers count anyway. Servers know nothing of it.

use super::Found;
use super::entry::{Entry, each};
use super::table::{Column, aligned, state};
use crate::control::protocol::escape;
use crate::error::{StartupError, system_at};
use crate::screen;
use clap::Parser;
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Before the first table.
const FIRST_INTERVAL: Duration = Duration::from_millis(500);

const TARGETS: [Column; 11] = [
    ("TARGET", false),
    ("STATE", false),
    ("REQ/S", true),
    ("BYTES/S", true),
    ("P50", true),
    ("P99", true),
    ("ERR/S", true),
    ("INODES", true),
    ("OPEN", true),
    ("BLOCKED", true),
    ("QUEUED", true),
];

const OPERATIONS: [Column; 7] = [
    ("TARGET", false),
    ("OPERATION", false),
    ("REQ/S", true),
    ("BYTES/S", true),
    ("P50", true),
    ("P99", true),
    ("ERR/S", true),
];

/// Show what mounts and shares do: requests, bytes, latencies, tables and queues
///
/// On a terminal again and again, until Ctrl-C; else once. What the kernel answers from its caches, and what passthrough
/// reads and writes, is no request, and does not count.
#[derive(Parser)]
#[command(name = "top")]
pub(crate) struct TopArguments {
    /// Seconds between two tables, from 0.1 on
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = screen::interval)]
    interval: Duration,
    /// Mount points, or sockets of shares, to show alone
    #[arg(id = "PATH")]
    paths: Vec<PathBuf>,
}

pub(crate) fn top(arguments: TopArguments) -> Result<(), StartupError> {
    let absolute = |path: &PathBuf| {
        let path = path.canonicalize().map_err(system_at("find", path))?;
        Ok(escape(path.as_os_str().as_bytes()))
    };
    let places = arguments.paths.iter().map(absolute);
    let places: Vec<String> = places.collect::<Result<_, StartupError>>()?;
    let mut found = Found::default();
    let mut before = Sample::take(&mut found, &places);
    std::thread::sleep(FIRST_INTERVAL);
    screen::refresh(arguments.interval, |columns| {
        let now = Sample::take(&mut found, &places);
        let text = now.since(&before, columns);
        before = now;
        text
    });
    Ok(())
}

/// Of an operation, or of several together.
#[derive(Clone, Default)]
struct Counts {
    requests: u64,
    errors: u64,
    bytes: u64,
    /// By the upper ends of buckets of latencies, ns.
    latencies: BTreeMap<u64, u64>,
}

impl Counts {
    fn add(&mut self, operation: &Value) {
        let number = |name: &str| operation[name].as_u64().unwrap_or_default();
        self.requests += number("requests");
        self.errors += number("errors");
        self.bytes += number("bytes");
        let buckets = operation["buckets_ns"].as_array().into_iter().flatten();
        for bucket in buckets {
            if let [Some(end), Some(count)] = [&bucket[0], &bucket[1]].map(Value::as_u64) {
                *self.latencies.entry(end).or_default() += count;
            }
        }
    }

    fn since(&self, before: Option<&Counts>) -> Counts {
        let mut more = self.clone();
        let Some(before) = before else { return more };
        more.requests = more.requests.saturating_sub(before.requests);
        more.errors = more.errors.saturating_sub(before.errors);
        more.bytes = more.bytes.saturating_sub(before.bytes);
        for (end, count) in &mut more.latencies {
            *count = count.saturating_sub(*before.latencies.get(end).unwrap_or(&0));
        }
        more
    }

    /// Rates, and latencies: requests, bytes, half of the requests, 99 %, errors.
    fn cells(&self, passed: Duration) -> [String; 5] {
        let rate = |count: u64| (count as f64 / passed.as_secs_f64()).round();
        [
            rate(self.requests).to_string(),
            scaled(rate(self.bytes), 1024.0, &["", "K", "M", "G", "T"]),
            self.within(0.5),
            self.within(0.99),
            rate(self.errors).to_string(),
        ]
    }

    /// The time within which this part of the requests ended.
    fn within(&self, part: f64) -> String {
        let total: u64 = self.latencies.values().sum();
        let rank = ((total as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        let mut buckets = self.latencies.iter();
        let bucket = buckets.find(|(_, count)| {
            seen += **count;
            seen >= rank
        });
        bucket.map_or("-".to_owned(), |(end, _)| {
            scaled(*end as f64 / 1e3, 1000.0, &["us", "ms", "s"])
        })
    }
}

/// Two or more digits, and a unit.
fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut units = units.iter();
    let mut unit = units.next();
    while value >= step && units.len() > 0 {
        value /= step;
        unit = units.next();
    }
    let unit = unit.unwrap_or(&"");
    match value < 10.0 && value.fract() > 0.0 {
        true => format!("{value:.1}{unit}"),
        false => format!("{value:.0}{unit}"),
    }
}

type Operations = BTreeMap<String, Counts>;

/// What all have counted.
struct Sample {
    at: Instant,
    all: Vec<(Entry, Operations)>,
}

impl Sample {
    /// Of these places, or of all.
    fn take(found: &mut Found, places: &[String]) -> Sample {
        let is_wanted = |entry: &Entry| places.is_empty() || places.contains(&entry.place);
        let at = Instant::now();
        let entries = found.entries(false).into_iter().filter(is_wanted);
        let all = entries.map(|entry| {
            let mut counted = Operations::new();
            let machines = entry.statistics.as_ref().map_or(&[][..], each).iter();
            let operations = machines.filter_map(|it| it["operations"].as_array());
            for operation in operations.flatten() {
                let name = operation["name"].as_str().unwrap_or_default().to_owned();
                counted.entry(name).or_default().add(operation);
            }
            (entry, counted)
        });
        Sample {
            at,
            all: all.collect(),
        }
    }

    /// The tables: the busiest first.
    fn since(&self, before: &Sample, columns: usize) -> String {
        let passed = self.at.duration_since(before.at);
        let (mut targets, mut operations) = (Vec::new(), Vec::new());
        for (entry, counted) in &self.all {
            let known = before.all.iter().find(|(it, _)| it.is_same(entry));
            let mut sum = Counts::default();
            for (name, counts) in counted {
                // What began meanwhile is not shown with all that it has counted since its start.
                let since = known.map(|(_, before)| counts.since(before.get(name)));
                let Some(more) = since.filter(|it| it.requests > 0) else {
                    continue;
                };
                let cells = [entry.place.clone(), name.clone()].into_iter();
                let row = cells.chain(more.cells(passed)).collect();
                operations.push((more.requests, (row, String::new())));
                sum.requests += more.requests;
                sum.errors += more.errors;
                sum.bytes += more.bytes;
                for (end, count) in more.latencies {
                    *sum.latencies.entry(end).or_default() += count;
                }
            }
            let cells = [entry.place.clone(), state(entry).to_owned()].into_iter();
            let cells = cells.chain(sum.cells(passed)).chain(levels(entry));
            targets.push((sum.requests, (cells.collect(), String::new())));
        }
        let table = |rows: &mut Vec<(u64, _)>, names: &[Column]| {
            // Of equals, the order stays.
            rows.sort_by_key(|(requests, _)| std::cmp::Reverse(*requests));
            let rows: Vec<_> = rows.drain(..).map(|(_, row)| row).collect();
            aligned(names, &rows, 1, columns)
        };
        let all = table(&mut targets, &TARGETS);
        all + "\n" + &table(&mut operations, &OPERATIONS)
    }
}

/// Inodes, open files, threads with requests that sleep, and what waits to be sent: answers and notifications.
fn levels(entry: &Entry) -> [String; 4] {
    const LEVELS: [&[&str]; 4] = [
        &["/tables/inodes"],
        &["/tables/open_files"],
        &["/figures/blocked", "/figures/waiting_for_locks"],
        &["/figures/answered_later", "/figures/notifications_queued"],
    ];
    LEVELS.map(|places| {
        let machines = entry.statistics.as_ref().map_or(&[][..], each).iter();
        let found = machines.flat_map(|it| places.iter().map(move |at| it.pointer(at)?.as_u64()));
        let found: Option<u64> = found.sum();
        match (entry.statistics.is_some(), found) {
            (true, Some(level)) => level.to_string(),
            _ => "-".to_owned(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rates_and_latencies_are_of_the_time_between_two_samples() {
        let counts = |operation: Value| {
            let mut counts = Counts::default();
            counts.add(&operation);
            counts
        };
        let before = counts(json!({
            "requests": 100, "errors": 1, "bytes": 0, "buckets_ns": [[1000, 90], [2_000_000, 10]],
        }));
        let now = counts(json!({
            "requests": 300, "errors": 5, "bytes": 3 << 20,
            "buckets_ns": [[1000, 90], [4000, 197], [2_000_000, 11], [3_000_000_000_u64, 2]],
        }));
        let more = now.since(Some(&before));
        let cells = more.cells(Duration::from_secs(2));
        assert_eq!(cells, ["100", "1.5M", "4us", "2ms", "2"]);
        assert_eq!(more.within(1.0), "3s");
        let none = now.since(Some(&now)).cells(Duration::from_secs(2));
        assert_eq!(none, ["0", "0", "-", "-", "0"]);
    }
}

//! The table, and the raw figures beside it.

use crate::contestant::{ALL, Contestant};
use crate::workload::WORKLOADS;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::Command;

/// Operations per second, by row and contestant, one per round.
#[derive(Default)]
pub(crate) struct Figures(HashMap<(&'static str, &'static str), Vec<f64>>);

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

impl Figures {
    pub(crate) fn add(&mut self, row: &'static str, contestant: Contestant, per_second: f64) {
        self.0
            .entry((row, contestant.name()))
            .or_default()
            .push(per_second);
    }

    fn of(&self, row: &'static str, contestant: Contestant) -> &[f64] {
        self.0
            .get(&(row, contestant.name()))
            .map_or(&[], Vec::as_slice)
    }

    /// Ratios of the same round, so that what else the machine did falls out.
    fn ratio(&self, row: &'static str, one: Contestant, other: Contestant) -> Option<Ratio> {
        let pairs = self.of(row, one).iter().zip(self.of(row, other));
        let ratios: Vec<f64> = pairs.map(|(one, other)| one / other).collect();
        let low = ratios.iter().copied().reduce(f64::min)?;
        let high = ratios.iter().copied().reduce(f64::max)?;
        Some(Ratio {
            median: median(&ratios),
            low,
            high,
        })
    }

    /// The table in Markdown.
    pub(crate) fn table(&self, lower: &str, rounds: u32) -> String {
        let mut table = format!(
            "Lower file system {lower}, {rounds} interleaved rounds. Ratios are of pairs of one \
             round: median (lowest to highest).\n\n| row | native /s | thrufs ÷ native | libfuse ÷ \
             native | thrufs ÷ libfuse | thrufs ÷ libfuse passthrough |\n|---|---|---|---|---|---|\n"
        );
        for workload in WORKLOADS {
            let row = workload.name;
            let native = self.of(row, Contestant::Native);
            if native.is_empty() {
                continue;
            }
            let cell = |one, other| {
                self.ratio(row, one, other)
                    .map_or("".to_owned(), |ratio| ratio.to_string())
            };
            let _ = writeln!(
                table,
                "| {row} | {:.0} {} | {} | {} | {} | {} |",
                median(native),
                workload.unit,
                cell(Contestant::Thrufs, Contestant::Native),
                cell(Contestant::Libfuse, Contestant::Native),
                cell(Contestant::Thrufs, Contestant::Libfuse),
                cell(Contestant::Thrufs, Contestant::LibfusePassthrough),
            );
        }
        table
    }

    /// Everything that was measured, as JSON.
    pub(crate) fn json(&self, lower: &str) -> String {
        let mut rows = Vec::new();
        for workload in WORKLOADS {
            for contestant in ALL {
                let values = self.of(workload.name, contestant);
                if !values.is_empty() {
                    let values: Vec<_> = values.iter().map(|value| format!("{value:.1}")).collect();
                    rows.push(format!(
                        "    {{\"row\": \"{}\", \"contestant\": \"{}\", \"per_second\": [{}]}}",
                        workload.name,
                        contestant.name(),
                        values.join(", ")
                    ));
                }
            }
        }
        let machine: Vec<_> = machine()
            .into_iter()
            .map(|(name, value)| format!("  \"{name}\": \"{}\"", value.replace('"', "'")))
            .collect();
        format!(
            "{{\n{},\n  \"lower\": \"{lower}\",\n  \"measured\": [\n{}\n  ]\n}}\n",
            machine.join(",\n"),
            rows.join(",\n")
        )
    }
}

struct Ratio {
    median: f64,
    low: f64,
    high: f64,
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ({:.2}–{:.2})", self.median, self.low, self.high)
    }
}

/// What the figures were measured on.
pub(crate) fn machine() -> Vec<(&'static str, String)> {
    let uname = rustix::system::uname();
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .map_or(String::new(), |rest| {
                rest.trim_matches([' ', ':', '\t']).to_owned()
            })
    };
    let commit = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .output()
        .map_or(String::new(), |output| {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        });
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    vec![
        ("kernel", uname.release().to_string_lossy().into_owned()),
        ("cpu", field(&read("/proc/cpuinfo"), "model name")),
        ("cpus", cpus.to_string()),
        ("memory", field(&read("/proc/meminfo"), "MemTotal")),
        ("load", read("/proc/loadavg").trim().to_owned()),
        ("commit", commit),
    ]
}

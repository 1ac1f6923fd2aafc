//! Whether the machine was quiet enough for the figures to mean anything: processor time that others took,
//! and the spread of native's own rates. Only remarks on it; no figure is dropped.

use crate::results::statistics::{Middle, rate, ratio};
use crate::results::{Cell, Kind, Results};
use rustix::process::Pid;
use std::fs;

/// Processors' time that others took, as a share of all there is, from which on it is said.
const OTHERS_MAX: f64 = 0.05;
/// The same of time that the hypervisor gave to others.
const STOLEN_MAX: f64 = 0.01;
/// An interval whose ends are further apart than this factor tells too little.
const FACTOR_MAX: f64 = 1.5;
/// Native's own rates lie so close together on a quiet machine: half their interval over the median.
const NATIVE_SPREAD_MAX: f64 = 0.15;

/// What the processors had done at one moment, in hundredths of a second, all of them together.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    busy: f64,
    stolen: f64,
    all: f64,
    ours: f64,
}

/// From the beginning of a run.
pub(super) struct Noise {
    before: Times,
}

impl Noise {
    pub(super) fn watch() -> Noise {
        Noise {
            before: Times::now(&[]),
        }
    }

    /// What is to be said of the time until now, in which these servers have run from the beginning and run
    /// still, and of what was measured in it.
    pub(super) fn remarks(&self, results: &Results, servers: &[Pid]) -> Vec<String> {
        let mut remarks = of_machine(self.before, Times::now(servers));
        remarks.extend(of_native(results));
        remarks.extend(of_rows(results));
        remarks
    }
}

impl Times {
    fn now(servers: &[Pid]) -> Times {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let own = std::iter::once("self".to_owned()).chain(
            servers
                .iter()
                .map(|server| server.as_raw_nonzero().to_string()),
        );
        let own = own
            .map(|process| fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default());
        Times::of(&stat, own.map(|stat| taken_by(&stat)).sum())
    }

    /// As of proc_stat(5).
    fn of(stat: &str, ours: f64) -> Times {
        let line = stat.lines().next().unwrap_or_default();
        let fields: Vec<f64> = numbers(line.trim_start_matches("cpu"));
        let field = |at: usize| fields.get(at).copied().unwrap_or_default();
        // user nice system idle iowait irq softirq steal; what guests took is in user.
        let stolen = field(7);
        let busy = field(0) + field(1) + field(2) + field(5) + field(6);
        Times {
            busy,
            stolen,
            all: busy + stolen + field(3) + field(4),
            ours,
        }
    }
}

/// By a process and those of its children that it has waited for (proc_pid_stat(5)): utime, stime, cutime
/// and cstime are fields 14 to 17, and the state, which comes after the name, is field 3.
fn taken_by(stat: &str) -> f64 {
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let times = fields.split_whitespace().skip(11).take(4);
    times.filter_map(|field| field.parse::<f64>().ok()).sum()
}

fn numbers(text: &str) -> Vec<f64> {
    text.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

fn of_machine(before: Times, after: Times) -> Vec<String> {
    let all = after.all - before.all;
    if all <= 0.0 {
        return Vec::new();
    }
    let mut remarks = Vec::new();
    let stolen = (after.stolen - before.stolen) / all;
    if stolen > STOLEN_MAX {
        remarks.push(format!(
            "the hypervisor gave {:.0} % of the processors' time to others",
            stolen * 100.0
        ));
    }
    let others = (after.busy - before.busy - (after.ours - before.ours)) / all;
    if others > OTHERS_MAX {
        remarks.push(format!(
            "other processes, and the kernel for itself, took {:.0} % of the processors' time: measure on \
             a quiet machine for narrower intervals",
            others * 100.0
        ));
    }
    remarks
}

/// The file system beneath is the same in every round.
fn of_native(results: &Results) -> Option<String> {
    let is_native = |cell: &&Cell| cell.target == "native" && cell.samples.len() > 2;
    let spreads = results.cells.iter().filter(is_native).filter_map(rate);
    let spread = Middle::of(spreads.map(|rate| rate.spread()).collect())?.median;
    (spread > NATIVE_SPREAD_MAX).then(|| {
        format!(
            "native's own rates differ by ±{:.0} % from round to round in the row in the middle: the \
             machine was not quiet",
            spread * 100.0
        )
    })
}

/// Rows whose intervals tell nothing.
fn of_rows(results: &Results) -> Option<String> {
    let mut noisy = Vec::new();
    let mut compared = 0;
    for cell in &results.cells {
        let kind = results
            .targets
            .iter()
            .find(|one| one.name == cell.target)?
            .kind;
        let native = results.cell(&cell.row, "native", &cell.lower, cell.jobs);
        let (true, Some(native)) = (kind != Kind::Native, native) else {
            continue;
        };
        compared += 1;
        if ratio(cell, native).is_some_and(|ratio| is_noisy(&ratio)) {
            noisy.push(format!("{} on {}", cell.row, cell.target));
        }
    }
    noisy.dedup();
    let count = noisy.len();
    if count == 0 {
        return None;
    }
    noisy.truncate(8);
    let more = if count > noisy.len() {
        ", and others"
    } else {
        ""
    };
    Some(format!(
        "too noisy to tell in {count} of {compared} cells: {}{more}",
        noisy.join(", ")
    ))
}

fn is_noisy(ratio: &Middle) -> bool {
    ratio.greatest > ratio.least * FACTOR_MAX
}

#[cfg(test)]
mod tests {
    use super::{Times, of_machine, taken_by};

    #[test]
    fn times_are_read_from_proc() {
        let stat = "cpu  10 1 20 300 5 2 3 7 4 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let own = "7 (a ) b) S 1 7 7 0 -1 4194304 100 0 0 0 11 12 13 14 20 0 1 0 5 6 7";
        assert_eq!(taken_by(own), 50.0);
        let times = Times::of(stat, 50.0);
        assert_eq!((times.busy, times.stolen, times.all), (36.0, 7.0, 348.0));
        assert_eq!(times.ours, 50.0);
    }

    #[test]
    fn time_taken_by_other_processes_is_remarked() {
        let before = Times::default();
        let minute = 6000.0;
        let quiet = Times {
            busy: minute / 2.0,
            stolen: 0.0,
            all: minute,
            ours: minute / 2.1,
        };
        assert!(of_machine(before, quiet).is_empty());
        let busy = Times {
            ours: minute / 4.0,
            stolen: minute / 20.0,
            ..quiet
        };
        let remarks = of_machine(before, busy);
        assert!(
            remarks[0].contains("5 %") && remarks[1].contains("25 %"),
            "{remarks:?}"
        );
    }
}

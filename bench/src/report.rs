//! The table, and the raw figures beside it.

use crate::Outcome;
use crate::row::Row;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// One measurement.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) operations: u64,
    pub(crate) nanoseconds: u64,
}

impl Sample {
    fn per_second(self) -> f64 {
        self.operations as f64 * 1e9 / self.nanoseconds as f64
    }
}

/// All rounds of one contestant in one row.
struct Series {
    lower: &'static str,
    row: &'static str,
    contestant: &'static str,
    samples: Vec<Sample>,
}

/// Everything measured so far.
pub(crate) struct Report {
    rounds: usize,
    machine: Vec<(&'static str, String)>,
    series: Vec<Series>,
    memory: Vec<String>,
    table: String,
    headed: Option<&'static str>,
}

impl Report {
    pub(crate) fn new(rounds: usize, machine: Vec<(&'static str, String)>) -> Self {
        let mut report = Report {
            rounds,
            machine,
            series: Vec::new(),
            memory: Vec::new(),
            table: String::new(),
            headed: None,
        };
        let mut head = String::new();
        for (name, text) in &report.machine {
            let _ = writeln!(head, "{name}: {text}");
        }
        let _ = writeln!(
            head,
            "{rounds} interleaved rounds; ratio to native: median [least to greatest] of the rounds"
        );
        report.say(&head);
        report
    }

    pub(crate) fn add(
        &mut self,
        lower: &'static str,
        row: &Row,
        contestant: &'static str,
        sample: Sample,
    ) {
        let known = self.series.iter_mut().find(|series| {
            series.lower == lower && series.row == row.name && series.contestant == contestant
        });
        match known {
            Some(series) => series.samples.push(sample),
            None => self.series.push(Series {
                lower,
                row: row.name,
                contestant,
                samples: vec![sample],
            }),
        }
    }

    pub(crate) fn add_memory(
        &mut self,
        lower: &'static str,
        contestant: &'static str,
        kib: Option<u64>,
    ) {
        if let Some(kib) = kib {
            self.say(&format!(
                "resident after the {lower} rows: {contestant} {kib} KiB\n"
            ));
            self.memory.push(format!(
                "{{\"lower\":\"{lower}\",\"contestant\":\"{contestant}\",\"resident_kib\":{kib}}}"
            ));
        }
    }

    /// Prints what is known of a row, as a line of the table.
    pub(crate) fn print_row(&mut self, lower: &'static str, row: &Row) {
        let all: Vec<&Series> = self
            .series
            .iter()
            .filter(|series| series.lower == lower && series.row == row.name)
            .collect();
        let Some(native) = all.iter().find(|series| series.contestant == "native") else {
            return;
        };
        let rates = native
            .samples
            .iter()
            .map(|sample| sample.per_second())
            .collect();
        let mut line = format!("| {} | {} |", row.name, rate(middle(rates).1, row.bytes));
        let mut heading = format!("\n| {lower} below | native |");
        let mut rule = "|---|---|".to_owned();
        for series in all.iter().filter(|series| series.contestant != "native") {
            let ratios = ratios(&series.samples, &native.samples);
            let (least, median, greatest) = middle(ratios);
            let _ = write!(line, " {median:.3} [{least:.3} to {greatest:.3}] |");
            let _ = write!(heading, " {} |", series.contestant);
            rule.push_str("---|");
        }
        // Ours against the best of the peers, round by round.
        if let Some(ours) = all.iter().find(|series| series.contestant == "thrufs") {
            let peers = all
                .iter()
                .filter(|series| series.contestant.starts_with("libfuse"));
            for peer in peers {
                let (_, median, _) = middle(ratios(&ours.samples, &peer.samples));
                let verdict = if median < 0.95 { " **slower**" } else { "" };
                let _ = write!(line, " {median:.2}{verdict} |");
                let _ = write!(heading, " thrufs / {} |", peer.contestant);
                rule.push_str("---|");
            }
        }
        if self.headed != Some(lower) {
            self.headed = Some(lower);
            self.say(&format!("{heading}\n{rule}\n"));
        }
        self.say(&format!("{line}\n"));
    }

    /// Writes the results beside the program's source.
    pub(crate) fn finish(self) -> Outcome<()> {
        let project = std::env::var("PROJECT").unwrap_or_else(|_| ".".to_owned());
        let results = PathBuf::from(project).join("bench/results");
        std::fs::create_dir_all(&results)
            .map_err(|error| format!("{}: {error}", results.display()))?;
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_secs());
        for (ending, text) in [("json", self.json()), ("md", self.table)] {
            let path = results.join(format!("{seconds}.{ending}"));
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
            println!("{}", path.display());
        }
        Ok(())
    }

    fn say(&mut self, text: &str) {
        print!("{text}");
        self.table.push_str(text);
    }

    fn json(&self) -> String {
        let mut text = format!("{{\"rounds\":{},\n\"machine\":{{", self.rounds);
        let pairs: Vec<String> = self
            .machine
            .iter()
            .map(|(name, value)| format!("\"{name}\":\"{}\"", escaped(value)))
            .collect();
        let _ = write!(
            text,
            "{}}},\n\"memory\":[{}],\n\"series\":[\n",
            pairs.join(","),
            self.memory.join(",")
        );
        let series: Vec<String> = self
            .series
            .iter()
            .map(|series| {
                let samples: Vec<String> = series
                    .samples
                    .iter()
                    .map(|sample| format!("[{},{}]", sample.operations, sample.nanoseconds))
                    .collect();
                format!(
                    "{{\"lower\":\"{}\",\"row\":\"{}\",\"contestant\":\"{}\",\
                     \"operations_and_nanoseconds\":[{}]}}",
                    series.lower,
                    series.row,
                    series.contestant,
                    samples.join(",")
                )
            })
            .collect();
        let _ = write!(text, "{}\n]}}\n", series.join(",\n"));
        text
    }
}

/// Round by round, how many times the rate of `base`.
fn ratios(samples: &[Sample], base: &[Sample]) -> Vec<f64> {
    samples
        .iter()
        .zip(base)
        .map(|(sample, base)| sample.per_second() / base.per_second())
        .collect()
}

/// Least, median, greatest.
fn middle(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    let half = values.len() / 2;
    let median = if values.len() % 2 == 1 {
        at(half)
    } else {
        f64::midpoint(at(half.wrapping_sub(1)), at(half))
    };
    (at(0), median, at(values.len().wrapping_sub(1)))
}

fn rate(per_second: f64, bytes: u64) -> String {
    match bytes {
        0 => format!("{:.0} k/s", per_second / 1e3),
        _ => format!("{:.2} GB/s", per_second * bytes as f64 / 1e9),
    }
}

fn escaped(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .collect::<String>()
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::middle;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(middle(vec![4.0, 1.0, 3.0, 2.0]), (1.0, 2.5, 4.0));
        assert_eq!(middle(vec![9.0, 1.0, 5.0]), (1.0, 5.0, 9.0));
    }
}

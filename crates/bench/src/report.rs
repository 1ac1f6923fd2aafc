//! The table, and the raw figures beside it.

mod builds;
mod killpriv;
mod through;
mod transports;
mod usual;

use crate::Outcome;
use crate::contest::Contest;
use crate::contestant::Contestant;
use crate::figures::Series;
use crate::measurement::Measured;
use crate::row::Row;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Everything measured so far.
pub(crate) struct Report {
    contest: Contest,
    rounds: usize,
    percent: usize,
    machine: Vec<(&'static str, String)>,
    series: Vec<Series>,
    memory: Vec<String>,
    table: String,
    /// The file system beneath and the jobs that the last heading was for.
    headed: Option<(&'static str, usize)>,
}

/// A line of a table, with the heading that it needs.
#[derive(Default)]
struct Line {
    heading: Vec<String>,
    cells: Vec<String>,
}

impl Line {
    fn add(&mut self, heading: impl Into<String>, cell: impl Into<String>) {
        self.heading.push(heading.into());
        self.cells.push(cell.into());
    }

    fn head(&self) -> String {
        format!(
            "\n| {} |\n|{}\n",
            self.heading.join(" | "),
            "---|".repeat(self.heading.len())
        )
    }

    fn text(&self) -> String {
        format!("| {} |\n", self.cells.join(" | "))
    }
}

/// The series of one row, by contestant.
struct Rows<'a>(Vec<&'a Series>);

impl<'a> Rows<'a> {
    fn named(&self, contestant: &str) -> Option<&'a Series> {
        let mut all = self.0.iter().copied();
        all.find(|series| series.contestant == contestant)
    }

    fn starting<'b>(&'b self, start: &'b str) -> impl Iterator<Item = &'a Series> + 'b {
        let all = self.0.iter().copied();
        all.filter(move |series| series.contestant.starts_with(start))
    }
}

impl Report {
    pub(crate) fn new(
        contest: Contest,
        rounds: usize,
        percent: usize,
        machine: Vec<(&'static str, String)>,
    ) -> Self {
        let mut head = String::new();
        for (name, text) in &machine {
            let _ = writeln!(head, "{name}: {text}");
        }
        let _ = writeln!(
            head,
            "{rounds} interleaved rounds; ratio to native: median [least to greatest] of the rounds"
        );
        if percent != 100 {
            let _ = writeln!(
                head,
                "QUICK: {percent} hundredths of the work: nothing follows from these figures"
            );
        }
        head.push_str(match contest {
            Contest::Usual { .. } | Contest::RingSetups => "",
            Contest::Transports => transports::LEGEND,
            Contest::Passthrough { .. } => through::LEGEND,
            Contest::Builds { .. } => builds::LEGEND,
            Contest::KillPriv => killpriv::LEGEND,
        });
        let mut report = Report {
            contest,
            rounds,
            percent,
            machine,
            series: Vec::new(),
            memory: Vec::new(),
            table: String::new(),
            headed: None,
        };
        report.say(&head);
        report
    }

    pub(crate) fn add(
        &mut self,
        lower: &'static str,
        jobs: usize,
        row: &'static Row,
        contestant: &'static str,
        measured: Measured,
    ) {
        let is_it = |series: &Series| {
            (series.lower, series.jobs) == (lower, jobs)
                && (series.row.name, series.contestant) == (row.name, contestant)
        };
        let place = self.series.iter().position(is_it).unwrap_or_else(|| {
            self.series.push(Series {
                lower,
                jobs,
                row,
                contestant,
                samples: Vec::new(),
                not_there: None,
                failed: None,
            });
            self.series.len() - 1
        });
        match measured {
            Measured::Sample(sample) => self.series[place].samples.push(sample),
            Measured::NotThere(why) => self.series[place].not_there = Some(why),
            Measured::Failed(why) => {
                eprintln!("FAILED: {} on {contestant}, {lower} below: {why}", row.name);
                self.series[place].failed.get_or_insert(why);
            }
        }
    }

    pub(crate) fn add_memory(&mut self, lower: &'static str, contestant: &Contestant) {
        if let Some(kib) = contestant.resident_kib() {
            let name = contestant.name();
            self.say(&format!(
                "resident after the {lower} rows: {name} {kib} KiB\n"
            ));
            self.memory.push(format!(
                "{{\"lower\":\"{lower}\",\"contestant\":\"{name}\",\"resident_kib\":{kib}}}"
            ));
        }
    }

    /// Prints what is known of a row, as a line of the table.
    pub(crate) fn print_row(&mut self, lower: &'static str, jobs: usize, row: &Row) {
        let all = self.series.iter().filter(|series| {
            (series.lower, series.jobs) == (lower, jobs) && series.row.name == row.name
        });
        let rows = Rows(all.collect());
        let line = match self.contest {
            Contest::Usual { .. } | Contest::RingSetups => usual::line(lower, jobs, row, &rows),
            Contest::Transports => transports::line(lower, jobs, row, &rows),
            Contest::Passthrough { .. } => through::line(lower, jobs, row, &rows),
            Contest::Builds { .. } => builds::line(lower, row, &rows),
            Contest::KillPriv => killpriv::line(lower, row, &rows),
        };
        let Some(line) = line else {
            return;
        };
        if self.headed != Some((lower, jobs)) {
            self.headed = Some((lower, jobs));
            self.say(&line.head());
        }
        self.say(&line.text());
    }

    /// Says what else there is to say, and writes the results beside the program's source.
    pub(crate) fn finish(mut self) -> Outcome<()> {
        if self.contest == Contest::Transports {
            let rates = transports::rates(&self.series);
            self.say(&rates);
        }
        let reasons = self.reasons();
        self.say(&reasons);
        let project = std::env::var("PROJECT").unwrap_or_else(|_| ".".to_owned());
        let results = PathBuf::from(project).join("bench/results");
        std::fs::create_dir_all(&results)
            .map_err(|error| format!("{}: {error}", results.display()))?;
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_secs());
        for (ending, text) in [("json", self.json()), ("md", self.table.clone())] {
            let path = results.join(format!("{seconds}.{ending}"));
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
            println!("{}", path.display());
        }
        match self
            .series
            .iter()
            .filter(|series| series.failed.is_some())
            .count()
        {
            0 => Ok(()),
            failed => Err(format!(
                "{failed} cells of the table have failed: see above"
            )),
        }
    }

    /// Why what is not there is not there, and what has failed.
    fn reasons(&self) -> String {
        let mut reasons: Vec<String> = Vec::new();
        for series in &self.series {
            let (row, contestant, lower) = (series.row.name, series.contestant, series.lower);
            for (word, why) in [("not there", &series.not_there), ("FAILED", &series.failed)] {
                let Some(why) = why else { continue };
                let reason = format!("{word}: {row} on {contestant}, {lower} below: {why}\n");
                if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
        }
        reasons.concat()
    }

    fn say(&mut self, text: &str) {
        print!("{text}");
        self.table.push_str(text);
    }

    fn json(&self) -> String {
        let (rounds, percent) = (self.rounds, self.percent);
        let mut text = format!("{{\"rounds\":{rounds},\"percent\":{percent},\n\"machine\":{{");
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
        let series: Vec<String> = self.series.iter().map(series_json).collect();
        let _ = write!(text, "{}\n]}}\n", series.join(",\n"));
        text
    }
}

fn series_json(series: &Series) -> String {
    let samples: Vec<String> = series
        .samples
        .iter()
        .map(|sample| format!("[{},{}]", sample.operations, sample.nanoseconds))
        .collect();
    let absent = |name: &str, why: &Option<String>| match why {
        Some(why) => format!(",\"{name}\":\"{}\"", escaped(why)),
        None => String::new(),
    };
    let not_there = absent("not_there", &series.not_there) + &absent("failed", &series.failed);
    format!(
        "{{\"lower\":\"{}\",\"jobs\":{},\"row\":\"{}\",\"contestant\":\"{}\",\
         \"operations_and_nanoseconds\":[{}]{not_there}}}",
        series.lower,
        series.jobs,
        series.row.name,
        series.contestant,
        samples.join(",")
    )
}

/// What stands over the first column.
fn corner(lower: &str, jobs: usize) -> String {
    match jobs {
        1 => format!("{lower} below"),
        _ => format!("{lower} below, {jobs} jobs"),
    }
}

fn escaped(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .collect::<String>()
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
}

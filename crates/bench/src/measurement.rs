//! One measurement: the same row by one or several processes at once, each on files of its own.
//!
//! A process makes its files beneath, warms up on others and says `ready`. When all have, the
//! kernel's caches are dropped (cold rows), and all start at once: their standard input is one pipe,
//! and it ends. What counts is the time from the first start to the last end, on the clock that all
//! processes share. Cleaning up comes when all have ended.

use crate::Outcome;
use crate::contestant::Contestant;
use crate::errand::Errand;
use crate::figures::Sample;
use crate::row::{self, Row};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// What came of a measurement.
pub(crate) enum Measured {
    Sample(Sample),
    /// What the row is about does not exist there, and why.
    NotThere(String),
    /// A program that others have written did not do it, and why. The others are measured all the
    /// same.
    Failed(String),
}

/// How often and how much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Amount {
    /// Processes at once.
    pub(crate) jobs: usize,
    /// Which round it is.
    pub(crate) round: usize,
    /// Work of each process, in hundredths of the usual.
    pub(crate) percent: usize,
}

/// No loop takes longer.
const LIMIT: Duration = Duration::from_secs(60);

/// What a process says when it has what it needs.
const READY: &str = "ready";
/// What it says instead when the row is not for this contestant, before the reason.
const NOT_THERE: &str = "not there:";
/// What it says instead when somebody else's program has failed, before the reason.
const FAILED: &str = "failed:";
/// In place of a processor's number: any.
const ANY: &str = "any";
/// Whether a file can be read a second time at the same price.
const ONCE: &str = "once";
const AGAIN: &str = "again";

/// Measures a row where `contestant` shows it.
pub(crate) fn measure(row: &Row, contestant: &Contestant, amount: Amount) -> Outcome<Measured> {
    if let Some(why) = contestant.cannot_run(row) {
        return Ok(Measured::NotThere(why.to_owned()));
    }
    let failed = |error: io::Error| format!("{} on {}: {error}", row.name, contestant.name());
    let (waiting, start) = io::pipe().map_err(failed)?;
    let mut jobs = Vec::new();
    for job in 0..amount.jobs {
        let waiting = waiting.try_clone().map_err(failed)?;
        jobs.push(Job::spawn(row, contestant, amount, job, waiting).map_err(failed)?);
    }
    drop(waiting);
    let mut without = None;
    for job in &mut jobs {
        let line = job.line().map_err(failed)?;
        if line != READY {
            let why = reason(&line);
            without = Some(why.ok_or_else(|| failed(io::Error::other("a measurement failed")))?);
        }
    }
    if row.cold && without.is_none() {
        drop_caches().map_err(failed)?;
    }
    drop(start);
    let mut spans = Vec::new();
    for job in &mut jobs {
        let line = job.line().map_err(failed)?;
        job.end().map_err(failed)?;
        without = without.or(reason(&line));
        spans.extend(Span::parse(&line));
    }
    for job in &jobs {
        job.clean_up().map_err(failed)?;
    }
    // Also by servers that keep a descriptor for whatever the kernel remembers.
    drop_caches().map_err(failed)?;
    if let Some(without) = without {
        return Ok(without);
    }
    match together(&spans) {
        Some(sample) if spans.len() == amount.jobs => Ok(Measured::Sample(sample)),
        _ => Err(failed(io::Error::other("a measurement without figures"))),
    }
}

/// What a process says that has no figures.
fn reason(line: &str) -> Option<Measured> {
    if let Some(why) = line.strip_prefix(NOT_THERE) {
        return Some(Measured::NotThere(why.trim().to_owned()));
    }
    let why = line.strip_prefix(FAILED)?;
    Some(Measured::Failed(why.trim().to_owned()))
}

/// One of the processes.
struct Job {
    process: Child,
    says: BufReader<ChildStdout>,
    beneath: PathBuf,
    seen: PathBuf,
}

impl Job {
    fn spawn(
        row: &Row,
        contestant: &Contestant,
        amount: Amount,
        job: usize,
        waiting: PipeReader,
    ) -> io::Result<Job> {
        // A name that was never used: no cache may remember it as gone.
        let directory = format!("{}-{}-{}-{job}", row.name, amount.jobs, amount.round);
        let beneath = contestant.source().join(&directory);
        let seen = contestant.seen_at(job).join(&directory);
        let processor = contestant.processor(job);
        let mut process = Command::new(std::env::current_exe()?)
            .arg(crate::ROLE)
            .args(["row", row.name])
            .arg(&beneath)
            .arg(&seen)
            .arg(amount.percent.to_string())
            .arg(processor.map_or(ANY.to_owned(), |number| number.to_string()))
            .arg(if contestant.caches_above() {
                ONCE
            } else {
                AGAIN
            })
            .stdin(waiting)
            .stdout(Stdio::piped())
            .spawn()?;
        let says = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Job {
            process,
            says: BufReader::new(says),
            beneath,
            seen,
        })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    fn end(&mut self) -> io::Result<()> {
        let status = self.process.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("a measurement ended: {status}")))
        }
    }

    /// Through the mount, so that no cache believes in what is gone. The floor shows files that are
    /// not there, and removes none.
    fn clean_up(&self) -> io::Result<()> {
        std::fs::remove_dir_all(&self.seen)?;
        if self.beneath.exists() {
            std::fs::remove_dir_all(&self.beneath)?;
        }
        Ok(())
    }
}

/// What one process has done, in nanoseconds of the monotonic clock.
struct Span {
    operations: u64,
    start: u64,
    end: u64,
}

impl Span {
    fn parse(line: &str) -> Option<Span> {
        let mut numbers = line.split_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Span {
            operations: next()?,
            start: next()?,
            end: next()?,
        })
    }
}

/// All operations, in the time from the first start to the last end.
fn together(spans: &[Span]) -> Option<Sample> {
    let start = spans.iter().map(|span| span.start).min()?;
    let end = spans.iter().map(|span| span.end).max()?;
    let nanoseconds = end.checked_sub(start).filter(|&time| time > 0)?;
    let operations = spans.iter().map(|span| span.operations).sum();
    Some(Sample {
        operations,
        nanoseconds,
    })
}

/// `row NAME BENEATH SEEN PERCENT PROCESSOR ONCE`: what one of the processes does.
pub(crate) fn measure_here(arguments: &[String]) -> Outcome<()> {
    let [name, beneath, seen, percent, processor, once] = arguments else {
        return Err("row NAME BENEATH SEEN PERCENT PROCESSOR ONCE".to_owned());
    };
    let percent = percent.parse();
    let errand = Errand {
        beneath: PathBuf::from(beneath),
        seen: PathBuf::from(seen),
        percent: percent.map_err(|_| "PERCENT is a number".to_owned())?,
        limit: LIMIT,
        once: once == ONCE,
        each: false,
    };
    let row = row::named(name)?;
    if processor != ANY {
        stay_on(processor)?;
    }
    match in_step(row, &errand) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            println!("{NOT_THERE} {error}");
            Ok(())
        }
        Err(error) if row.is_by_another_program() => {
            let why = error.to_string().replace('\n', "; ");
            println!("{FAILED} {why}");
            Ok(())
        }
        outcome => outcome.map_err(|error| format!("{name} at {seen}: {error}")),
    }
}

fn in_step(row: &Row, errand: &Errand) -> io::Result<()> {
    std::fs::create_dir(&errand.beneath)?;
    let prepared = row.prepare(errand)?;
    await_start()?;
    let done = row.run(errand, &prepared)?;
    println!("{} {} {}", done.operations, done.start, done.end);
    Ok(())
}

/// Says that all is prepared, and waits for the others.
fn await_start() -> io::Result<()> {
    println!("{READY}");
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Keeps this process on one processor.
pub(crate) fn stay_on(processor: &str) -> Outcome<()> {
    let number: usize = processor
        .parse()
        .map_err(|_| "PROCESSOR is a number".to_owned())?;
    let mut set = CpuSet::new();
    set.set(number);
    sched_setaffinity(None, &set).map_err(|error| format!("cannot stay on CPU {number}: {error}"))
}

/// Writes back and drops pages, names and inodes.
pub(crate) fn drop_caches() -> io::Result<()> {
    let synced = Command::new("sync").status()?;
    if !synced.success() {
        return Err(io::Error::other("sync failed"));
    }
    std::fs::write("/proc/sys/vm/drop_caches", "3")
}

#[cfg(test)]
mod tests {
    use super::{Span, together};

    #[test]
    fn jobs_count_from_the_first_start_to_the_last_end() {
        let spans: Vec<Span> = ["10 1000 3000", "10 1500 4500"]
            .into_iter()
            .filter_map(Span::parse)
            .collect();
        let sample = together(&spans).unwrap();
        assert_eq!((sample.operations, sample.nanoseconds), (20, 3500));
        assert!(together(&[]).is_none());
        assert!(Span::parse("10 1000").is_none());
    }
}

//! One measurement: the same row by one or several processes at once, each on files of its own.
//!
//! A process makes its files beneath, warms up on others and says `ready`. When all have, the
//! kernel's caches are dropped (cold rows), and all start at once: their standard input is one pipe,
//! and it ends. What counts is the time from the first start to the last end, on the clock that all
//! processes share. Cleaning up comes when all have ended.

use crate::Outcome;
use crate::contestant::Contestant;
use crate::figures::Sample;
use crate::row::{self, Row};
use crate::workload::Place;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// What came of a measurement.
pub(crate) enum Measured {
    Sample(Sample),
    /// What the row is about does not exist there, and why.
    NotThere(String),
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

/// What a process says when it has what it needs.
const READY: &str = "ready";
/// What it says instead when the row is not for this contestant, before the reason.
const NOT_THERE: &str = "not there:";
/// In place of a processor's number: any.
const ANY: &str = "any";

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
    let mut not_there = None;
    for job in &mut jobs {
        let line = job.line().map_err(failed)?;
        match line.strip_prefix(NOT_THERE) {
            Some(why) => not_there = Some(why.trim().to_owned()),
            None if line == READY => {}
            None => return Err(failed(io::Error::other("a measurement failed"))),
        }
    }
    if row.cold && not_there.is_none() {
        drop_caches().map_err(failed)?;
    }
    drop(start);
    let mut spans = Vec::new();
    for job in &mut jobs {
        let line = job.line().map_err(failed)?;
        job.end().map_err(failed)?;
        spans.extend(Span::parse(&line));
    }
    for job in &jobs {
        job.clean_up().map_err(failed)?;
    }
    // Also by servers that keep a descriptor for whatever the kernel remembers.
    drop_caches().map_err(failed)?;
    if let Some(why) = not_there {
        return Ok(Measured::NotThere(why));
    }
    match together(&spans) {
        Some(sample) if spans.len() == amount.jobs => Ok(Measured::Sample(sample)),
        _ => Err(failed(io::Error::other("a measurement without figures"))),
    }
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
            .args(["row", row.name])
            .arg(&beneath)
            .arg(&seen)
            .arg(amount.percent.to_string())
            .arg(processor.map_or(ANY.to_owned(), |number| number.to_string()))
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

/// `row NAME BENEATH SEEN PERCENT PROCESSOR`: what one of the processes does. `BENEATH` is a
/// directory to be made, `SEEN` where it will be seen.
pub(crate) fn measure_here(arguments: &[String]) -> Outcome<()> {
    let [name, beneath, seen, percent, processor] = arguments else {
        return Err("row NAME BENEATH SEEN PERCENT PROCESSOR".to_owned());
    };
    let percent: usize = percent
        .parse()
        .map_err(|_| "PERCENT is a number".to_owned())?;
    let row = row::named(name)?;
    if processor != ANY {
        stay_on(processor)?;
    }
    match in_step(row, Path::new(beneath), Path::new(seen), percent) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            println!("{NOT_THERE} {error}");
            Ok(())
        }
        outcome => outcome.map_err(|error| format!("{name} at {seen}: {error}")),
    }
}

fn in_step(row: &Row, beneath: &Path, seen: &Path, percent: usize) -> io::Result<()> {
    std::fs::create_dir(beneath)?;
    let operations = row.scaled(percent);
    let place =
        |name: &str, operations: usize| Place::new(beneath.join(name), seen.join(name), operations);
    let warm_up = place("warm-up", operations / 10 + 1)?;
    let real = place("measured", operations)?;
    (row.prepare)(&warm_up)?;
    (row.prepare)(&real)?;
    if row.cold {
        drop_caches()?;
    }
    (row.run)(&warm_up)?;
    println!("{READY}");
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    let start = now();
    (row.run)(&real)?;
    let end = now();
    println!("{operations} {start} {end}");
    Ok(())
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
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
fn drop_caches() -> io::Result<()> {
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

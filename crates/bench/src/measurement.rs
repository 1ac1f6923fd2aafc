//! One measurement: the same row by one or several processes at once, each on files of its own.
//!
//! A process makes its files beneath, warms up on others and says `ready`. When all have, the
//! kernel's caches are dropped (cold rows), and all start at once: their standard input is one pipe,
//! and it ends. What counts is the time from the first start to the last end, on the clock that all
//! processes share. Cleaning up comes when all have ended.

pub(crate) mod process;

use crate::isolation::is_root;
use crate::plan::PlannedRow;
use crate::results::{Absence, Sample};
use crate::stop::Stop;
use crate::target::RunningTarget;
use crate::task::Done;
use process::{JobProcess, Said};
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

/// How long a process may take to be ready, or to be done.
const PATIENCE: Duration = Duration::from_secs(180);

/// What came of a measurement.
pub(crate) enum Measured {
    Sample(Sample),
    /// There is no figure, and why.
    Absent(Absence),
    /// The run is to end.
    Stopped,
}

impl Measured {
    pub(crate) fn failed(why: &str) -> Measured {
        Measured::Absent(Absence::failure(why))
    }
}

/// Measures a row where `target` shows it. It fails where nothing can be measured at all: no processes, no pipes.
pub(crate) fn measure(
    planned: PlannedRow,
    target: &mut RunningTarget,
    round: u32,
    percent: u32,
    stop: &Stop,
) -> io::Result<Measured> {
    if stop.is_wanted() {
        return Ok(Measured::Stopped);
    }
    if planned.row.cold && !target.can_be_cold() {
        let (failed, why) = (
            false,
            "only root can drop what this mount has cached".to_owned(),
        );
        return Ok(Measured::Absent(Absence { failed, why }));
    }
    let (waiting, start) = io::pipe()?;
    let spawn =
        |job| JobProcess::spawn(planned, target, (round, job), percent, waiting.try_clone()?);
    let mut jobs = (0..planned.jobs)
        .map(spawn)
        .collect::<io::Result<Vec<_>>>()?;
    drop(waiting);
    let measured = measured(planned, target, round, &mut jobs, start, stop);
    if matches!(measured, Ok(Measured::Stopped)) {
        // The scratch folder goes as a whole.
        jobs.iter_mut().for_each(JobProcess::kill);
        return measured;
    }
    jobs.iter_mut().for_each(JobProcess::end);
    let cleaned = jobs.iter().try_for_each(JobProcess::clean_up);
    let measured = measured?;
    if let (Err(error), Measured::Sample(_)) = (cleaned, &measured) {
        return Ok(Measured::failed(&format!("cleaning up: {error}")));
    }
    if is_root() {
        // Also by servers that keep a descriptor for whatever the kernel remembers.
        drop_caches("2")?;
    }
    Ok(measured)
}

fn measured(
    planned: PlannedRow,
    target: &mut RunningTarget,
    round: u32,
    jobs: &mut [JobProcess],
    start: io::PipeWriter,
    stop: &Stop,
) -> io::Result<Measured> {
    let is_ready = |said| matches!(said, Said::Ready).then_some(());
    if let Err(without) = hear(jobs, stop, is_ready)? {
        return Ok(without);
    }
    if planned.row.cold {
        make_cold(target)?;
    }
    drop(start);
    let done = |said| match said {
        Said::Done(done) => Some(done),
        _ => None,
    };
    let together = |done: Vec<Done>| together(&done, round).map(Measured::Sample);
    let measured = hear(jobs, stop, done)?.map(together);
    let measured = measured.map(|one| one.unwrap_or_else(|| Measured::failed("without figures")));
    Ok(measured.unwrap_or_else(|without| without))
}

/// What each of them says next, if that is what it should say; else, what came of it.
fn hear<T>(
    jobs: &mut [JobProcess],
    stop: &Stop,
    expected: impl Fn(Said) -> Option<T>,
) -> io::Result<Result<Vec<T>, Measured>> {
    let until = Instant::now() + PATIENCE;
    let (mut all, mut without) = (Vec::new(), None);
    for job in jobs {
        match job.says(stop, until)? {
            Said::Stopped => return Ok(Err(Measured::Stopped)),
            Said::Absent(absence) => without = Some(Measured::Absent(absence)),
            said => match expected(said) {
                Some(one) => all.push(one),
                None => without = Some(Measured::failed(&job.why_not())),
            },
        }
    }
    Ok(without.map_or(Ok(all), Err))
}

/// All operations, in the time from the first start to the last end.
fn together(spans: &[Done], round: u32) -> Option<Sample> {
    let start = spans.iter().map(|span| span.start).min()?;
    let end = spans.iter().map(|span| span.end).max()?;
    let nanoseconds = end.checked_sub(start).filter(|&time| time > 0)?;
    let operations = spans.iter().map(|span| span.operations).sum();
    (operations > 0).then_some(Sample {
        round,
        operations,
        nanoseconds,
    })
}

/// A cold row is cold above everywhere: what native has cached beneath, only root can drop.
fn make_cold(target: &mut RunningTarget) -> io::Result<()> {
    if is_root() {
        // What is dirty cannot be dropped.
        rustix::fs::syncfs(File::open(target.source())?)?;
        return drop_caches("3");
    }
    target.mount_anew().map_err(io::Error::other)
}

/// Drops unused names and inodes (2), or these and pages (3), of all file systems.
fn drop_caches(which: &str) -> io::Result<()> {
    std::fs::write("/proc/sys/vm/drop_caches", which)
}

#[cfg(test)]
mod tests {
    use super::together;
    use crate::task::Done;

    #[test]
    fn jobs_count_from_the_first_start_to_the_last_end() {
        let span = |operations, start, end| Done {
            operations,
            start,
            end,
        };
        let sample = together(&[span(10, 1000, 3000), span(10, 1500, 4500)], 7).unwrap();
        assert_eq!(
            (sample.round, sample.operations, sample.nanoseconds),
            (7, 20, 3500)
        );
        assert!(together(&[], 0).is_none());
        assert!(together(&[span(0, 1, 2)], 0).is_none());
    }
}

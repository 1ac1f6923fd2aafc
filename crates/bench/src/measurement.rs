//! One measurement: the same row by one or several processes at once, each on files of its own.
//!
//! A process makes its files beneath, warms up on others and says `ready`. When all have, the
//! kernel's caches are dropped (cold rows), and all start at once: their standard input is one pipe,
//! and it ends. What counts is the time from the first start to the last end, on the clock that all
//! processes share. Cleaning up comes when all have ended.

mod job;
mod latency;
mod order;
mod question;

use crate::Outcome;
use crate::counting::Running;
use crate::isolation::Privileges;
use crate::results::{Counts, Sample};
use crate::row::Row;
use crate::stop::Stop;
use crate::target::RunningTarget;
use crate::task::Done;
use job::{JobProcess, Said};
use question::absent;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) use order::measure_here;
pub use order::stay_on;
pub(crate) use question::{Amount, Measured, Question};

/// Measures a row where `target` shows it; the time until it could start is added to `preparing`.
///
/// # Errors
///
/// Where nothing can be measured at all: no processes, no pipes.
pub(crate) fn measure(
    row: &Row,
    target: &mut RunningTarget,
    amount: Amount,
    privileges: Privileges,
    stop: &Stop,
    preparing: &mut Duration,
) -> io::Result<Measured> {
    if row.cold && !can_be_cold(target, privileges) {
        return Ok(absent(
            false,
            "only root can drop what this mount has cached",
        ));
    }
    let began = Instant::now();
    let (waiting, start) = io::pipe()?;
    let mut jobs = Vec::new();
    for job in 0..amount.jobs {
        let waiting = waiting.try_clone()?;
        jobs.push(JobProcess::spawn(
            row,
            target,
            amount,
            job as usize,
            waiting,
        )?);
    }
    drop(waiting);
    let mut run = Run {
        jobs,
        stop,
        until: Instant::now() + amount.patience,
    };
    let measured = run.get_ready().and_then(|early| match early {
        Some(early) => Ok(early),
        None => {
            *preparing += began.elapsed();
            if row.cold {
                make_cold(target, privileges)?;
            }
            let servers = target.servers();
            let counting = match amount.question {
                Question::Counts if !target.is_native() => {
                    Some(Running::start(target.seen_at(0), &servers))
                }
                _ => None,
            };
            drop(start);
            run.until = Instant::now() + amount.patience;
            let measured = run.finish(amount)?;
            Ok(with_counts(measured, counting))
        }
    });
    if matches!(measured, Ok(Measured::Stopped)) {
        // The scratch folder goes as a whole.
        run.jobs.iter_mut().for_each(JobProcess::kill);
        return measured;
    }
    let cleaned = run.clean_up();
    let measured = measured?;
    if let (Err(error), false) = (cleaned, matches!(measured, Measured::Absent(_))) {
        return Ok(absent(true, &format!("cleaning up: {error}")));
    }
    if privileges.drops_caches() {
        // Also by servers that keep a descriptor for whatever the kernel remembers.
        forget_names()?;
    }
    Ok(measured)
}

/// The processes of a measurement.
struct Run<'a> {
    jobs: Vec<JobProcess>,
    stop: &'a Stop,
    until: Instant,
}

impl Run<'_> {
    /// Waits until all are ready, and gives what came of it when one never will be.
    fn get_ready(&mut self) -> io::Result<Option<Measured>> {
        let mut without = None;
        for job in &mut self.jobs {
            match job.says(self.stop, self.until)? {
                Said::Ready => {}
                Said::Stopped => return Ok(Some(Measured::Stopped)),
                Said::Absent(absence) => without = Some(Measured::Absent(absence)),
                Said::Done(_) | Said::Nothing => without = Some(job.why_not()),
            }
        }
        if without.is_some() {
            self.end();
        }
        Ok(without)
    }

    /// Waits until all are done.
    fn finish(&mut self, amount: Amount) -> io::Result<Measured> {
        let mut spans = Vec::new();
        let mut without = None;
        for job in &mut self.jobs {
            match job.says(self.stop, self.until)? {
                Said::Done(span) => spans.push(span),
                Said::Stopped => return Ok(Measured::Stopped),
                Said::Absent(absence) => without = Some(Measured::Absent(absence)),
                Said::Ready | Said::Nothing => without = Some(job.why_not()),
            }
        }
        self.end();
        if let Some(without) = without {
            return Ok(without);
        }
        Ok(match (amount.question, together(&spans, amount.round)) {
            (_, None) => absent(true, "a measurement without figures"),
            (Question::Rate, Some(sample)) => Measured::Sample(sample),
            (Question::Counts, Some(sample)) => Measured::Counts(Counts {
                operations: sample.operations,
                ..Counts::default()
            }),
            (Question::Latency, Some(_)) => {
                let each = spans.into_iter().flat_map(|span| span.each).collect();
                latency::of(each).map_or_else(
                    || absent(false, "its operations are not timed one by one"),
                    Measured::Latency,
                )
            }
        })
    }

    /// Ends those that run, and waits for all.
    fn end(&mut self) {
        for job in &mut self.jobs {
            job.end();
        }
    }

    fn clean_up(&mut self) -> io::Result<()> {
        self.end();
        self.jobs.iter().try_for_each(JobProcess::clean_up)
    }
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
fn can_be_cold(target: &RunningTarget, privileges: Privileges) -> bool {
    privileges.drops_caches() || target.is_native() || target.can_mount_anew()
}

fn make_cold(target: &mut RunningTarget, privileges: Privileges) -> io::Result<()> {
    if privileges.drops_caches() {
        return drop_caches(target.source());
    }
    if target.can_mount_anew() {
        return target.mount_anew().map_err(io::Error::other);
    }
    Ok(())
}

/// What was counted; or why nothing was, which is so for the whole run.
fn with_counts(measured: Measured, counting: Option<Outcome<Running>>) -> Measured {
    match (measured, counting) {
        (Measured::Counts(counts), Some(counting)) => {
            match counting.and_then(|counting| counting.stop(counts.operations)) {
                Ok(counts) => Measured::Counts(counts),
                Err(why) => absent(false, &why),
            }
        }
        (measured, _) => measured,
    }
}

/// Writes back what is dirty on the file system of `directory`, and drops pages, names and inodes of all.
///
/// # Errors
///
/// Of writing back; EACCES or EPERM without root.
pub(crate) fn drop_caches(directory: &Path) -> io::Result<()> {
    rustix::fs::syncfs(File::open(directory)?)?;
    std::fs::write("/proc/sys/vm/drop_caches", "3")
}

/// Drops unused dentries and inodes.
fn forget_names() -> io::Result<()> {
    std::fs::write("/proc/sys/vm/drop_caches", "2")
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
            each: Vec::new(),
        };
        let sample = together(&[span(10, 1000, 3000), span(10, 1500, 4500)], 7).unwrap();
        assert_eq!((sample.operations, sample.nanoseconds), (20, 3500));
        assert_eq!(sample.round, 7);
        assert!(together(&[], 0).is_none());
        assert!(together(&[span(0, 1, 2)], 0).is_none());
    }
}

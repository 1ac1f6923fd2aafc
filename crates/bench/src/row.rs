//! The rows of the table: what is measured.
//!
//! A process of a measurement prepares a row, waits, and runs it. Between the two, caches may be dropped and the
//! target may be **mounted anew** (which an ordinary user can do, and which empties the caches above): what is
//! prepared keeps nothing open where the target shows it.

pub(crate) mod list;
#[cfg(test)]
mod tests;

use crate::clock::Clock;
use crate::data::Job;
use crate::task::{Done, Task};
use crate::workload::Place;
use std::io;
use std::path::Path;
use std::time::Duration;

/// One row.
pub(crate) struct Row {
    /// The word by which it is known.
    pub(crate) name: &'static str,
    /// For people: what its operations are, and what is cached.
    pub(crate) about: &'static str,
    /// The heading under which it stands.
    pub(crate) group: &'static str,
    /// Bytes of one operation, when a rate of bytes is what people want to read; else 0.
    pub(crate) bytes: u64,
    /// Whether the kernel's caches are dropped before the clock starts.
    pub(crate) cold: bool,
    /// How many processes measure it, when the command line names no number.
    pub(crate) jobs: &'static [u32],
    pub(crate) work: Work,
}

pub(crate) enum Work {
    /// A loop over names and attributes.
    Loop(Loop),
    /// Reads or writes of a file.
    Data(Job),
}

/// A loop over names.
#[derive(Clone, Copy)]
pub(crate) struct Loop {
    /// Operations of a measurement, and things to do them with, at the usual amount of work.
    pub(crate) operations: usize,
    /// How often it goes through all of them.
    pub(crate) repeats: usize,
    /// In a tree that is kept for the run, under this name; those of the same name are made alike. Where there is
    /// none, in a new directory: it uses up or leaves behind what is there.
    pub(crate) kept: Option<&'static str>,
    /// Makes what the row needs beneath, out of the time.
    pub(crate) make: Make,
    /// Brings it into the caches above, out of the time.
    pub(crate) warm: Option<Timed>,
    /// What is timed.
    pub(crate) run: Timed,
}

/// Makes what is in a place; goes through it, until the clock has no more; and what is prepared: does the work.
pub(crate) type Make = fn(&Place) -> io::Result<()>;
pub(crate) type Timed = fn(&Place, &mut Clock) -> io::Result<()>;
pub(crate) type Ready = Box<dyn FnOnce(&Task) -> io::Result<Done>>;

/// How long the loop of a measurement goes on.
pub(crate) const LIMIT: Duration = Duration::from_secs(1);
/// The warm-up's directory in that of the measurement, and its share of the work.
const WARM_UP: &str = "warm-up";
const WARM_UP_SHARE: usize = 10;
/// Fewer operations tell nothing.
const OPERATIONS_MIN: usize = 16;

impl Row {
    /// Makes what the row needs in `task.beneath`, which is there and empty, and warms up on something
    /// else: the loop is in memory, and so is what the server needs for it.
    pub(crate) fn prepare(&'static self, task: &Task) -> io::Result<Ready> {
        match &self.work {
            Work::Loop(work) => {
                let operations = self.operations(task.percent);
                let few = operations / WARM_UP_SHARE + 1;
                let warm_up = work.place(task, WARM_UP, few)?;
                work.repeat(&warm_up, &mut Clock::start(task.limit))?;
                // Last: what is cached above may be so for a second only.
                let place = work.place(task, "measured", operations)?;
                Ok(Box::new(move |task| {
                    timed(task, |clock| work.repeat(&place, clock))
                }))
            }
            Work::Data(job) => {
                job.prepare(task, "", task.percent)?;
                // A megabyte is enough to warm up with.
                job.prepare(task, WARM_UP, 0)?;
                let seen = task.seen.join(WARM_UP);
                job.run(&seen, 0, true, &mut Clock::start(task.limit))?;
                Ok(Box::new(move |task| {
                    timed(task, |clock| {
                        job.run(&task.seen, task.percent, task.once, clock)
                    })
                }))
            }
        }
    }

    /// Operations of a measurement of a loop at this share of the usual work.
    pub(crate) fn operations(&self, percent: usize) -> usize {
        match &self.work {
            Work::Loop(work) => (work.operations * percent / 100).max(OPERATIONS_MIN),
            Work::Data(_) => 1,
        }
    }
}

impl Loop {
    fn repeat(&self, place: &Place, clock: &mut Clock) -> io::Result<()> {
        for _ in 0..self.repeats {
            (self.run)(place, clock)?;
            if clock.is_over() {
                break;
            }
        }
        Ok(())
    }

    fn place(&self, task: &Task, name: &str, operations: usize) -> io::Result<Place> {
        let make = |beneath: &Path| {
            std::fs::create_dir(beneath)?;
            (self.make)(&Place {
                beneath: beneath.to_owned(),
                seen: beneath.to_owned(),
                operations,
            })
        };
        let (beneath, seen) = match self.kept {
            None => {
                make(&task.beneath.join(name))?;
                (task.beneath.join(name), task.seen.join(name))
            }
            Some(stem) => task.kept(&format!("{stem}-{operations}"), make)?,
        };
        let place = Place {
            beneath,
            seen,
            operations,
        };
        if let Some(warm) = self.warm {
            warm(&place, &mut Clock::start(Duration::MAX))?;
        }
        Ok(place)
    }
}

fn timed(task: &Task, run: impl FnOnce(&mut Clock) -> io::Result<()>) -> io::Result<Done> {
    let mut clock = Clock::start(task.limit);
    run(&mut clock)?;
    let (operations, start, end) = clock.stop();
    Ok(Done {
        operations,
        start,
        end,
    })
}

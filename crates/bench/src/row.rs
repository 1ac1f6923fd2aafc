//! The rows of the table: what is measured. `data` has reads and writes, `metadata` names and attributes,
//! `sets` the names of several at once.
//!
//! A process of a measurement prepares a row, waits, and runs it. Between the two, caches may be dropped and the
//! target may be **mounted anew** (which an ordinary user can do, and which empties the caches above): what is
//! prepared keeps nothing open where the target shows it.

mod data;
mod info;
pub(crate) mod list;
mod metadata;
pub(crate) mod needs;
mod sets;

use crate::Outcome;
use crate::clock::Clock;
use crate::job::{self, Cache, Job, own};
use crate::kept::Claim;
use crate::results::Group;
use crate::task::{Done, Task};
use crate::workload::Place;
use std::io;
use std::time::Duration;

pub(crate) use info::info;
pub use metadata::{OF_CHAINS, OF_ONE_FILE, OF_SMALL_FILES, OF_TREE};
pub use needs::Needs;
pub(crate) use sets::names;
pub use sets::{listed, named};

/// One row.
pub struct Row {
    /// The word by which it is known.
    pub name: &'static str,
    /// Bytes of one operation, when a rate of bytes is what people want to read; else 0.
    pub bytes: u64,
    /// Whether the kernel's caches are dropped before the clock starts.
    pub cold: bool,
    /// The least rate that is aimed at, as a share of native's; for data, where passthrough is on.
    pub goal: Option<f64>,
    /// Whether it is measured by as many processes as the suite says, when the command line names no number; else by one.
    pub more_jobs: bool,
    /// What is done.
    pub work: Work,
}

/// What kind of work it is.
pub enum Work {
    /// A loop over names and attributes.
    Loop(Loop),
    /// Reads or writes of a file.
    Data(Job),
    /// What another program brings along.
    Other(&'static dyn Program),
}

/// Work of a kind that this program does not know.
pub trait Program: Send + Sync {
    /// For people: `git status, cached`.
    fn title(&self) -> String;

    /// For people: what one operation is, and what is cached.
    fn about(&self) -> String;

    /// Under which heading it stands.
    fn group(&self) -> Group;

    /// What does the work.
    fn engine(&self) -> String;

    /// Gets what it needs and the machine does not have, at the start of a run.
    ///
    /// # Errors
    ///
    /// What could not be had.
    fn fetch(&self) -> Outcome<()> {
        Ok(())
    }

    /// Why it cannot be done on this machine, wherever, if it cannot.
    fn missing(&self) -> Option<String>;

    /// What a process needs at this share of the usual work.
    fn needs(&self, percent: usize) -> Needs;

    /// What the file is called that is kept for the run, if it needs no more than that.
    fn kept(&self, _percent: usize) -> Option<String> {
        None
    }

    /// Whether its operations can be timed one by one.
    fn times_each(&self) -> bool {
        true
    }

    /// Whether only one process can measure it.
    fn is_alone(&self) -> bool {
        false
    }

    /// Makes what it needs, as [`Row::prepare`].
    ///
    /// # Errors
    ///
    /// As of [`Row::prepare`].
    fn prepare(&self, task: &Task) -> io::Result<Ready>;
}

/// What is prepared: does the work.
pub type Ready = Box<dyn FnOnce(&Task) -> io::Result<Done>>;

/// A loop of our own.
#[derive(Clone, Copy)]
pub struct Loop {
    /// For people: `stat, nothing cached`.
    pub title: &'static str,
    /// For people: what one operation is, and what is cached.
    pub about: &'static str,
    /// Under which heading it stands.
    pub group: Group,
    /// Operations of a measurement, and things to do them with, at the usual amount of work.
    pub operations: usize,
    /// How often it goes through all of them.
    pub repeats: usize,
    /// Files and directories for each operation.
    pub inodes: usize,
    /// Where it works.
    pub directory: LoopDirectory,
    /// Makes what the row needs beneath, out of the time.
    pub make: fn(&Place) -> io::Result<()>,
    /// Brings it into the caches above, out of the time.
    pub warm: Option<Timed>,
    /// What is timed.
    pub run: Timed,
}

/// Goes through the things of a place, until the clock has no more.
pub type Timed = fn(&Place, &mut Clock) -> io::Result<()>;

/// Where a loop works.
#[derive(Clone, Copy)]
pub enum LoopDirectory {
    /// In a new directory: it uses up or leaves behind what is there.
    New,
    /// In a tree that is kept for the run, under this name. Those of the same name are made alike.
    Kept(&'static str),
}

/// Names that are looked at in a row. No more, because some servers keep a descriptor for each.
const NAMES: usize = 8000;
/// Loops over what is cached go through it so often, or they would be over at once.
pub const REPEATS: usize = 20;
/// The warm-up's directory in that of the measurement, and its share of the work.
const WARM_UP: &str = "warm-up";
const WARM_UP_SHARE: usize = 10;

/// Of native's rate, with passthrough.
const GOAL: f64 = 0.95;
/// Of native's rate, for what needs no request once it is cached above.
const GOAL_CACHED: f64 = 0.90;

impl Row {
    /// A loop.
    #[must_use]
    pub const fn looped(name: &'static str, work: Loop) -> Row {
        Row {
            name,
            bytes: 0,
            cold: false,
            goal: None,
            more_jobs: false,
            work: Work::Loop(work),
        }
    }

    /// A loop over what is cached above.
    #[must_use]
    pub const fn warm(name: &'static str, work: Loop) -> Row {
        Row {
            goal: Some(GOAL_CACHED),
            ..Row::looped(name, work)
        }
    }

    /// A loop over what is cached nowhere.
    #[must_use]
    pub const fn cold(name: &'static str, work: Loop) -> Row {
        Row {
            cold: true,
            ..Row::looped(name, work)
        }
    }

    /// Reads or writes of one file, by a loop.
    #[must_use]
    pub const fn data(name: &'static str, job: Job) -> Row {
        Row {
            name,
            bytes: job.block_bytes,
            cold: matches!(job.cache, Cache::Nowhere),
            goal: Some(GOAL),
            more_jobs: false,
            work: Work::Data(job),
        }
    }

    /// Reads of what is cached nowhere: once through, since what is cold is so once.
    #[must_use]
    pub const fn cold_data(name: &'static str, job: Job) -> Row {
        let (cache, passes) = (Cache::Nowhere, 1);
        let job = Job {
            cache,
            passes,
            ..job
        };
        Row::data(name, job)
    }

    /// Makes what the row needs in `task.beneath`, which is there and empty, and warms up on something
    /// else: loops of our own are in memory, and so is what the server needs for them. What comes back keeps others
    /// from what is kept for the run.
    ///
    /// # Errors
    ///
    /// As of the calls made; [`io::ErrorKind::Unsupported`] where the target or the machine does not have
    /// what the row is about.
    pub fn prepare(&'static self, task: &Task) -> io::Result<Ready> {
        match &self.work {
            Work::Loop(work) => {
                let operations = self.scaled(task.percent);
                let few = operations / WARM_UP_SHARE + 1;
                let (warm_up, first) = work.place(task, WARM_UP, few)?;
                work.repeat(&warm_up, &mut Clock::start(task.limit))?;
                // Last: what is cached above may be so for a second only.
                let (place, second) = work.place(task, "measured", operations)?;
                Ok(Box::new(move |task| {
                    let _claims = (first, second);
                    timed(task, |clock| work.repeat(&place, clock))
                }))
            }
            Work::Data(job) => {
                let claims = prepare_data(job, task)?;
                Ok(Box::new(move |task| {
                    let _claims = claims;
                    let bytes = job.file_bytes(task.percent);
                    timed(task, |clock| {
                        own::run(job, &task.seen, bytes, task.once, clock)
                    })
                }))
            }
            Work::Other(program) => program.prepare(task),
        }
    }

    fn program(&self) -> Option<&'static dyn Program> {
        match self.work {
            Work::Other(program) => Some(program),
            Work::Loop(_) | Work::Data(_) => None,
        }
    }

    /// Gets what the row needs and the machine does not have, at the start of a run.
    pub(crate) fn fetch(&self) -> Outcome<()> {
        self.program().map_or(Ok(()), Program::fetch)
    }

    /// Whether its operations can be timed one by one.
    pub(crate) fn times_each(&self) -> bool {
        self.program().is_none_or(Program::times_each)
    }

    /// Whether only one process can measure it.
    pub(crate) fn is_alone(&self) -> bool {
        self.program().is_some_and(Program::is_alone)
    }

    /// Why the row cannot be measured on this machine, wherever, if it cannot: for people.
    pub(crate) fn missing(&self) -> Option<String> {
        self.program()?.missing()
    }
}

impl Loop {
    /// Small amounts of metadata, in a new directory that is empty.
    pub const NEW: Loop = Loop {
        title: "",
        about: "",
        group: Group::Metadata,
        operations: NAMES,
        repeats: 1,
        inodes: 1,
        directory: LoopDirectory::New,
        make: |_| Ok(()),
        warm: None,
        run: |_, _| Ok(()),
    };

    fn repeat(&self, place: &Place, clock: &mut Clock) -> io::Result<()> {
        for _ in 0..self.repeats {
            (self.run)(place, clock)?;
            if clock.is_over() {
                break;
            }
        }
        Ok(())
    }

    fn place(
        &self,
        task: &Task,
        name: &str,
        operations: usize,
    ) -> io::Result<(Place, Option<Claim>)> {
        let (place, claim) = match self.directory {
            LoopDirectory::New => {
                let beneath = task.beneath.join(name);
                let seen = task.seen.join(name);
                let place = make(&beneath, operations, self.make)?;
                (Place { seen, ..place }, None)
            }
            LoopDirectory::Kept(stem) => {
                let kept = task.kept_beneath()?;
                let claim = Claim::take(&kept, &format!("{stem}-{operations}"), |path| {
                    make(path, operations, self.make).map(drop)
                })?;
                let place = Place {
                    beneath: kept.join(&claim.name),
                    seen: task.kept_seen().join(&claim.name),
                    operations,
                };
                (place, Some(claim))
            }
        };
        if let Some(warm) = self.warm {
            warm(&place, &mut Clock::start(Duration::MAX))?;
        }
        Ok((place, claim))
    }
}

/// A directory beneath and what is to be in it.
fn make(
    beneath: &std::path::Path,
    operations: usize,
    make: fn(&Place) -> io::Result<()>,
) -> io::Result<Place> {
    std::fs::create_dir(beneath)?;
    let place = Place {
        beneath: beneath.to_owned(),
        seen: beneath.to_owned(),
        operations,
    };
    make(&place)?;
    Ok(place)
}

/// A megabyte is enough to warm up with.
fn prepare_data(job: &Job, task: &Task) -> io::Result<[Claim; 2]> {
    let claim = job::data::prepare(job, task, "", task.percent)?;
    let warm_up = job::data::prepare(job, task, WARM_UP, 0)?;
    let seen = task.seen.join(WARM_UP);
    let mut clock = Clock::start(task.limit);
    own::run(job, &seen, job.file_bytes(0), true, &mut clock)?;
    Ok([claim, warm_up])
}

/// Times a loop.
///
/// # Errors
///
/// As of the loop.
pub fn timed(task: &Task, run: impl FnOnce(&mut Clock) -> io::Result<()>) -> io::Result<Done> {
    let mut clock = if task.each {
        Clock::start_for_each(task.limit)
    } else {
        Clock::start(task.limit)
    };
    run(&mut clock)?;
    clock.stop();
    let (start, end) = clock.span();
    Ok(Done {
        operations: clock.operations(),
        start,
        end,
        each: clock.each(),
    })
}

#[cfg(test)]
mod tests;

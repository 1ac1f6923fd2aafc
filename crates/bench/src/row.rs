//! The rows of the table: what is measured. [`data`] has reads and writes, [`metadata`] names and attributes,
//! [`programs`] whole programs, [`sets`] the names of several at once.
//!
//! A process of a measurement prepares a row, waits, and runs it. Between the two, caches may be dropped and the
//! contestant may be **mounted anew** (which an ordinary user can do, and which empties the caches above): what is
//! prepared keeps nothing open where the contestant shows it.

mod data;
mod info;
pub(crate) mod list;
mod metadata;
mod programs;
mod sets;

use crate::Outcome;
use crate::build::Project;
use crate::clock::{Clock, now};
use crate::errand::{Done, Errand};
use crate::fio::{self, Waiting};
use crate::git::Git;
use crate::job::{self, By, Cache, Job, own};
use crate::kept::Claim;
use crate::results::Group;
use crate::workload::Place;
use std::io;

pub(crate) use info::info;
pub(crate) use sets::{listed, named, names};

/// One row.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Bytes of one operation, when a rate of bytes is what people want to read; else 0.
    pub(crate) bytes: u64,
    /// Whether the kernel's caches are dropped before the clock starts.
    pub(crate) cold: bool,
    /// The least rate that is aimed at, as a share of native's; for data, where files go straight through.
    pub(crate) goal: Option<f64>,
    pub(crate) work: Work,
}

/// What kind of work it is.
pub(crate) enum Work {
    /// A loop of our own.
    Loop(Loop),
    /// Reads or writes of a file, by fio or by a loop of our own.
    Data(Job),
    Build(Project),
    Git(Git),
}

/// A loop of our own.
pub(crate) struct Loop {
    /// For people: `stat, nothing cached`.
    title: &'static str,
    /// For people: what one operation is, and what is cached.
    about: &'static str,
    group: Group,
    /// Operations of a measurement, and things to do them with, at the usual amount of work. Loops over what is
    /// cached go through it [`REPEATS`](crate::workload::REPEATS) times.
    operations: usize,
    /// Files and directories for each operation.
    inodes: usize,
    ground: Ground,
    /// Makes what the row needs beneath, out of the time.
    make: fn(&Place) -> io::Result<()>,
    /// Brings it into the caches above, out of the time.
    warm: Option<fn(&Place) -> io::Result<()>>,
    /// What is timed.
    run: fn(&Place, &mut Clock) -> io::Result<()>,
    /// Why the floor, which keeps nothing, cannot do it.
    floor_cannot: Option<&'static str>,
}

/// Where a loop works.
#[derive(Clone, Copy)]
enum Ground {
    /// In a new directory: it uses up or leaves behind what is there.
    New,
    /// In a tree that is kept for the run, under this name. Those of the same name are made alike.
    Kept(&'static str),
}

/// What [`Row::prepare`] hands to [`Row::run`].
pub(crate) struct Prepared {
    place: Option<Place>,
    /// Kept from others until the row is done.
    claims: Vec<Claim>,
    /// It has come to the first block.
    fio: Option<Waiting>,
}

/// The warm-up's directory in that of the measurement, and its share of the work.
const WARM_UP: &str = "warm-up";
const WARM_UP_SHARE: usize = 10;

impl Row {
    /// Makes what the row needs in `errand.beneath`, which is there and empty, and warms up on something
    /// else: loops of our own are in memory, and so is what the server needs for them.
    ///
    /// # Errors
    ///
    /// As of the calls made; [`io::ErrorKind::Unsupported`] where the contestant or the machine does not have
    /// what the row is about.
    pub(crate) fn prepare(&self, errand: &Errand) -> io::Result<Prepared> {
        let mut fio = None;
        let (place, claims) = match &self.work {
            Work::Loop(work) => {
                let operations = self.scaled(errand.percent);
                let few = operations / WARM_UP_SHARE + 1;
                let (warm_up, first) = work.ground(errand, WARM_UP, few)?;
                (work.run)(&warm_up, &mut Clock::start(errand.limit))?;
                // Last: what is cached above may be so for a second only.
                let (place, second) = work.ground(errand, "measured", operations)?;
                (Some(place), first.into_iter().chain(second).collect())
            }
            Work::Data(job) => {
                let claims = prepare_data(job, errand)?;
                if job.is_for_fio() {
                    fio = Some(Waiting::start(job, errand)?);
                }
                (None, claims)
            }
            Work::Build(project) => {
                project.prepare(&errand.beneath, errand.percent)?;
                (None, Vec::new())
            }
            Work::Git(git) => (None, vec![git.prepare(errand)?]),
        };
        Ok(Prepared { place, claims, fio })
    }

    /// Does the work.
    ///
    /// # Errors
    ///
    /// As of [`prepare`](Self::prepare).
    pub(crate) fn run(&self, errand: &Errand, prepared: &mut Prepared) -> io::Result<Done> {
        match (&self.work, &prepared.place) {
            (Work::Loop(work), Some(place)) => timed(errand, |clock| (work.run)(place, clock)),
            (Work::Loop(_), None) => Err(io::Error::other("not prepared")),
            (Work::Data(job), _) if job.is_for_fio() => {
                let fio = prepared.fio.take();
                by_fio(
                    job,
                    errand,
                    fio.ok_or_else(|| io::Error::other("not prepared"))?,
                )
            }
            (Work::Data(job), _) => {
                let bytes = job.file_bytes(errand.percent);
                timed(errand, |clock| {
                    own::run(job, &errand.seen, bytes, errand.once, clock)
                })
            }
            (Work::Build(project), _) => {
                let start = now();
                let nanoseconds = project.run(&errand.seen, errand.percent)?;
                Ok(took(1, start, nanoseconds))
            }
            (Work::Git(git), _) => {
                let claim = prepared.claims.first();
                let claim = claim.ok_or_else(|| io::Error::other("not prepared"))?;
                timed(errand, |clock| git.run(errand, claim, clock))
            }
        }
    }

    /// Gets what the row needs and the machine does not have, at the start of a run: packages, sources. Needs
    /// root and a network.
    ///
    /// # Errors
    ///
    /// What could not be had.
    pub(crate) fn fetch(&self) -> Outcome<()> {
        match &self.work {
            Work::Data(job) if job.by == By::Fio => fio::install(),
            Work::Build(project) => project.fetch(),
            Work::Loop(_) | Work::Data(_) | Work::Git(_) => Ok(()),
        }
    }

    /// Whether its operations can be timed one by one: a build is all of its row, and takes long.
    pub(crate) fn times_each(&self) -> bool {
        !matches!(self.work, Work::Build(_))
    }

    /// Why the row cannot be measured on this machine, wherever, if it cannot: for people.
    pub(crate) fn missing(&self) -> Option<String> {
        match &self.work {
            Work::Loop(_) => None,
            Work::Data(job) => job.impossible(),
            Work::Build(project) => project.missing(),
            Work::Git(git) => git.missing(),
        }
    }

    /// Why the floor, which keeps nothing, cannot do it, if it cannot.
    pub(crate) fn floor_cannot(&self) -> Option<&'static str> {
        match &self.work {
            Work::Loop(work) => work.floor_cannot,
            Work::Data(job) if job.by == By::Own && !job.attribute => None,
            Work::Data(_) | Work::Build(_) | Work::Git(_) => Some("its files keep nothing"),
        }
    }

    /// Operations of a measurement at this share of the usual work.
    fn scaled(&self, percent: usize) -> usize {
        let usual = match &self.work {
            Work::Loop(work) => work.operations,
            Work::Data(_) | Work::Build(_) | Work::Git(_) => 1,
        };
        (usual * percent / 100).max(16)
    }
}

impl Loop {
    fn ground(
        &self,
        errand: &Errand,
        name: &str,
        operations: usize,
    ) -> io::Result<(Place, Option<Claim>)> {
        let (place, claim) = match self.ground {
            Ground::New => {
                let beneath = errand.beneath.join(name);
                let seen = errand.seen.join(name);
                let place = make(&beneath, operations, self.make)?;
                (Place { seen, ..place }, None)
            }
            Ground::Kept(stem) => {
                let kept = errand.kept_beneath()?;
                let claim = Claim::take(&kept, &format!("{stem}-{operations}"), |path| {
                    make(path, operations, self.make).map(drop)
                })?;
                let place = Place {
                    beneath: kept.join(&claim.name),
                    seen: errand.kept_seen().join(&claim.name),
                    operations,
                };
                (place, Some(claim))
            }
        };
        if let Some(warm) = self.warm {
            warm(&place)?;
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

/// A megabyte is enough to warm up with; fio warms up by itself.
fn prepare_data(job: &Job, errand: &Errand) -> io::Result<Vec<Claim>> {
    job.must_be_possible()?;
    let mut claims = vec![job::data::prepare(job, errand, "", errand.percent)?];
    if !job.is_for_fio() {
        claims.push(job::data::prepare(job, errand, WARM_UP, 0)?);
        let seen = errand.seen.join(WARM_UP);
        let mut clock = Clock::start(errand.limit);
        own::run(job, &seen, job.file_bytes(0), true, &mut clock)?;
    }
    Ok(claims)
}

/// fio's time is its own; where on the clock it was is not known to the millisecond.
fn by_fio(job: &Job, errand: &Errand, fio: Waiting) -> io::Result<Done> {
    let start = now();
    let done = fio.run(job, errand)?;
    Ok(Done {
        each: done.each,
        ..took(done.operations, start, done.nanoseconds)
    })
}

fn timed(errand: &Errand, run: impl FnOnce(&mut Clock) -> io::Result<()>) -> io::Result<Done> {
    let mut clock = if errand.each {
        Clock::start_for_each(errand.limit)
    } else {
        Clock::start(errand.limit)
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

fn took(operations: u64, start: u64, nanoseconds: u64) -> Done {
    Done {
        operations,
        start,
        end: start + nanoseconds,
        each: Vec::new(),
    }
}

/// Whether nothing may be cached above or beneath when a job starts.
const fn is_cold(job: &Job) -> bool {
    matches!(job.cache, Cache::Nowhere)
}

#[cfg(test)]
mod tests;

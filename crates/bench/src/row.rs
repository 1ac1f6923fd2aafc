//! The rows of the table: what is measured. Those that fio runs stand in [`through`], builds in
//! [`builds`].

mod builds;
mod through;

use crate::Outcome;
use crate::build::Project;
use crate::clock::{Clock, now};
use crate::errand::{Done, Errand};
use crate::fio::Job;
use crate::results;
use crate::workload::{self, Place};
use std::io;

/// One row.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Operations per measurement, before `--quick`.
    pub(crate) operations: usize,
    /// Bytes of one operation, when a rate of bytes is what people want to read; else 0.
    pub(crate) bytes: u64,
    /// Whether the kernel's caches are dropped before the clock starts.
    pub(crate) cold: bool,
    /// The least rate that files which go straight through should have, as a share of native's.
    pub(crate) goal: Option<f64>,
    pub(crate) work: Work,
}

/// Who does it.
pub(crate) enum Work {
    /// A loop of our own.
    Loop {
        /// Makes what the row needs, out of the time.
        prepare: fn(&Place) -> io::Result<()>,
        /// What is timed.
        run: fn(&Place, &mut Clock) -> io::Result<()>,
    },
    Fio(Job),
    Build(Project),
}

const fn row(
    name: &'static str,
    operations: usize,
    bytes: u64,
    cold: bool,
    prepare: fn(&Place) -> io::Result<()>,
    run: fn(&Place, &mut Clock) -> io::Result<()>,
) -> Row {
    Row {
        name,
        operations,
        bytes,
        cold,
        goal: None,
        work: Work::Loop { prepare, run },
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Those that are loops of our own.
pub(crate) const ROWS: &[Row] = &[
    row(
        "random-read-4k-cold",
        16384,
        4 * KIB,
        true,
        workload::one_file,
        workload::random_read_4k,
    ),
    row(
        "random-read-4k-warm",
        65536,
        4 * KIB,
        false,
        workload::one_file_read,
        workload::random_read_4k,
    ),
    row(
        "random-write-4k",
        16384,
        4 * KIB,
        false,
        workload::one_file,
        workload::random_write_4k,
    ),
    row(
        "append-4k",
        16384,
        4 * KIB,
        false,
        workload::nothing,
        workload::append_4k,
    ),
    row(
        "mmap-read-4k-cold",
        16384,
        4 * KIB,
        true,
        workload::one_file,
        workload::mmap_read_4k,
    ),
    row(
        "read-128k-cold",
        2048,
        128 * KIB,
        true,
        workload::one_file_of_pieces,
        workload::read_128k,
    ),
    row(
        "read-1m-cold",
        256,
        MIB,
        true,
        workload::one_big_file,
        workload::read_1m,
    ),
    row(
        "read-1m-direct",
        256,
        MIB,
        true,
        workload::one_big_file,
        workload::read_1m_direct,
    ),
    row(
        "write-1m",
        256,
        MIB,
        false,
        workload::nothing,
        workload::write_1m,
    ),
    row(
        "open-close",
        20000,
        0,
        false,
        workload::one_file,
        workload::open_close,
    ),
    row(
        "open-close-write",
        20000,
        0,
        false,
        workload::one_file,
        workload::open_close_write,
    ),
    row(
        "stat-warm",
        100_000,
        0,
        false,
        workload::one_file,
        workload::stat_one,
    ),
    row(
        "stat-cold",
        5000,
        0,
        true,
        workload::many_files,
        workload::stat_each,
    ),
    row(
        "stat-birth-cold",
        5000,
        0,
        true,
        workload::many_files,
        workload::stat_each_birth,
    ),
    row(
        "stat-missing",
        5000,
        0,
        false,
        workload::nothing,
        workload::stat_missing,
    ),
    row(
        "list-cold",
        5000,
        0,
        true,
        workload::many_files,
        workload::list,
    ),
    row(
        "small-file-read-cold",
        3000,
        4 * KIB,
        true,
        workload::many_files,
        workload::read_each,
    ),
    row(
        "create",
        5000,
        0,
        false,
        workload::nothing,
        workload::create,
    ),
    row(
        "create-write-4k",
        3000,
        4 * KIB,
        false,
        workload::nothing,
        workload::create_write_4k,
    ),
    row("mkdir", 5000, 0, false, workload::nothing, workload::mkdir),
    row(
        "rename",
        5000,
        0,
        false,
        workload::many_files_seen,
        workload::rename,
    ),
    row(
        "unlink",
        5000,
        0,
        false,
        workload::many_files_seen,
        workload::unlink,
    ),
];

/// The headline rows.
const QUICK: &[&str] = &[
    "read-128k-cold",
    "random-read-4k-cold",
    "random-write-4k",
    "write-1m",
    "mmap-read-4k-cold",
    "open-close",
    "stat-warm",
    "stat-cold",
    "list-cold",
    "small-file-read-cold",
    "create-write-4k",
    "rename",
    "unlink",
];

/// Those of the usual table.
pub(crate) const USUAL: &[&str] = &[
    "random-read-4k-cold",
    "random-read-4k-warm",
    "random-write-4k",
    "append-4k",
    "mmap-read-4k-cold",
    "read-128k-cold",
    "read-1m-cold",
    "read-1m-direct",
    "write-1m",
    "open-close",
    "stat-warm",
    "stat-cold",
    "stat-birth-cold",
    "stat-missing",
    "list-cold",
    "small-file-read-cold",
    "create",
    "create-write-4k",
    "mkdir",
    "rename",
    "unlink",
];

/// The rows that a comparison of transports is about.
const TRANSPORTS: &[&str] = &[
    "read-128k-cold",
    "read-1m-cold",
    "read-1m-direct",
    "mmap-read-4k-cold",
    "random-read-4k-cold",
    "random-write-4k",
    "stat-cold",
    "open-close",
    "create",
    "unlink",
    "rename",
];

/// Names of several rows, for `--rows`.
const GROUPS: &[(&str, &[&str])] = &[
    ("quick", QUICK),
    ("full", USUAL),
    ("usual", USUAL),
    ("transports", TRANSPORTS),
    ("passthrough", through::GROUP),
    ("builds", builds::GROUP),
    ("killpriv", &["fio-random-write-4k", "random-write-4k"]),
];

/// Rows that a comparison measures by several processes as well when nobody says how many.
const WITH_MORE_JOBS: &[&str] = &["open-close", "open-close-write"];

/// What [`Row::prepare`] hands to [`Row::run`].
pub(crate) struct Prepared {
    place: Option<Place>,
}

impl Row {
    /// Makes what the row needs in `errand.beneath`, which is there and empty, and warms up on something
    /// else: loops of our own are in memory, and so is what the server needs for them.
    ///
    /// # Errors
    ///
    /// As of the calls made; [`io::ErrorKind::Unsupported`] where the contestant does not have what the
    /// row is about.
    pub(crate) fn prepare(&self, errand: &Errand) -> io::Result<Prepared> {
        let (beneath, percent) = (&errand.beneath, errand.percent);
        let place = match &self.work {
            Work::Loop { prepare, run } => {
                let operations = self.scaled(percent);
                let place = |name: &str, operations: usize| {
                    Place::new(beneath.join(name), errand.seen.join(name), operations)
                };
                let warm_up = place("warm-up", operations / 10 + 1)?;
                let real = place("measured", operations)?;
                prepare(&warm_up)?;
                prepare(&real)?;
                run(&warm_up, &mut Clock::start(errand.limit))?;
                Some(real)
            }
            Work::Fio(job) => {
                job.prepare(beneath, percent)?;
                None
            }
            Work::Build(project) => {
                project.prepare(beneath)?;
                None
            }
        };
        Ok(Prepared { place })
    }

    /// Does the work.
    ///
    /// # Errors
    ///
    /// As of [`prepare`](Self::prepare).
    pub(crate) fn run(&self, errand: &Errand, prepared: &Prepared) -> io::Result<Done> {
        let start = now();
        // Who takes the time: the program itself.
        let took = |operations, nanoseconds| Done {
            operations,
            start,
            end: start + nanoseconds,
            each: Vec::new(),
        };
        match (&self.work, &prepared.place) {
            (Work::Loop { run, .. }, Some(place)) => {
                let mut clock = if errand.each {
                    Clock::start_for_each(errand.limit)
                } else {
                    Clock::start(errand.limit)
                };
                run(place, &mut clock)?;
                clock.stop();
                let (start, end) = clock.span();
                Ok(Done {
                    operations: clock.operations(),
                    start,
                    end,
                    each: clock.each(),
                })
            }
            (Work::Loop { .. }, None) => Err(io::Error::other("not prepared")),
            (Work::Fio(job), _) => {
                let done = job.run(&errand.seen, errand.percent, errand.once)?;
                Ok(took(done.bytes / job.block_bytes, done.nanoseconds))
            }
            (Work::Build(project), _) => {
                Ok(took(1, project.run(&errand.seen, errand.percent < 100)?))
            }
        }
    }
}

impl Row {
    /// Whether the row is measured by so many processes at once when nobody has said how many.
    pub(crate) fn is_usual_for(&self, jobs: usize) -> bool {
        jobs == 1 || WITH_MORE_JOBS.contains(&self.name)
    }

    /// What a report says of it.
    pub(crate) fn info(&self) -> results::Row {
        let group = match (&self.work, self.bytes) {
            (Work::Build(_), _) => results::Group::Programs,
            (_, 0) => results::Group::Metadata,
            _ => results::Group::Data,
        };
        results::Row {
            name: self.name.to_owned(),
            title: self.name.replace('-', " "),
            about: String::new(),
            group,
            operation_bytes: self.bytes,
            in_seconds: group == results::Group::Programs,
            cold: self.cold,
            engine: "loop".to_owned(),
            goal: self.goal,
        }
    }

    /// Operations of a measurement at this share of the usual work.
    pub(crate) fn scaled(&self, percent: usize) -> usize {
        (self.operations * percent / 100).max(16)
    }
}

/// All rows and groups, for people.
pub(crate) fn list() -> String {
    let mut text = String::new();
    for (name, members) in GROUPS {
        text.push_str(&format!("{name}: {}\n", members.join(" ")));
    }
    text
}

fn all() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().chain(through::ROWS).chain(builds::ROWS)
}

/// The names of all rows.
pub(crate) fn names() -> Vec<&'static str> {
    all().map(|row| row.name).collect()
}

/// The row of that name.
pub(crate) fn named(name: &str) -> Outcome<&'static Row> {
    all().find(|row| row.name == name).ok_or_else(|| {
        let groups: Vec<&str> = GROUPS.iter().map(|(group, _)| *group).collect();
        format!(
            "no row {name}; there are: {}; and groups: {}",
            names().join(" "),
            groups.join(" ")
        )
    })
}

/// The rows of a list of names of rows and groups, parted by commas.
pub(crate) fn listed(names: &str) -> Outcome<Vec<&'static Row>> {
    let mut rows = Vec::new();
    for name in names.split(',') {
        match GROUPS.iter().find(|(group, _)| *group == name) {
            Some((_, members)) => {
                for member in *members {
                    rows.push(named(member)?);
                }
            }
            None => rows.push(named(name)?),
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::{GROUPS, listed};

    #[test]
    fn a_group_stands_for_its_rows() {
        let names = |list: &str| -> Vec<&str> {
            let rows = listed(list).unwrap_or_else(|why| panic!("{why}"));
            rows.iter().map(|row| row.name).collect()
        };
        for (group, members) in GROUPS {
            assert_eq!(names(group), *members);
        }
        let mixed = names("mkdir,transports");
        assert_eq!(mixed.len(), 12);
        assert_eq!(mixed[..2], ["mkdir", "read-128k-cold"]);
        assert!(listed("mkdir,transport").is_err());
    }
}

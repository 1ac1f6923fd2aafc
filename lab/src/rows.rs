//! What is measured besides the rows of `thrufs-bench`, and the sets that the suites name.

mod loops;

use crate::build::{Idle, Project};
use crate::fio::FioJob;
use crate::git::Git;
use thrufs_bench::row::{Program, Row, Work};

/// Reads and writes of one file by fio, as their names say: see [`FioJob::named`].
const FIO: [&str; 24] = [
    "read-4k",
    "write-4k",
    "write-4k-fsync",
    "random-read-4k",
    "random-write-4k",
    "random-write-4k-fsync",
    "read-1m",
    "write-1m",
    "write-1m-fsync",
    "direct-random-read-4k",
    "direct-random-write-4k",
    "direct-read-1m",
    "direct-write-1m",
    "aio16-read-4k",
    "aio16-write-4k",
    "aio16-random-read-4k",
    "aio16-random-write-4k",
    "aio64-read-4k",
    "aio64-write-4k",
    "aio64-random-read-4k",
    "aio64-random-write-4k",
    "mmap-read-4k",
    "mmap-random-read-4k",
    "mmap-random-write-4k",
];

/// Of native's rate, with passthrough.
const GOAL: f64 = 0.95;
/// With asynchronous I/O.
const GOAL_AIO: f64 = 0.90;
/// Building is to take no more than 1.05 times as long as natively.
const GOAL_BUILD: f64 = 1.0 / 1.05;
/// What is cached is to be as fast as natively, nearly.
const GOAL_CACHED: f64 = 0.90;

fn row(name: &'static str, goal: Option<f64>, bytes: u64, work: &'static dyn Program) -> Row {
    Row {
        name,
        bytes,
        cold: false,
        goal,
        more_jobs: false,
        work: Work::Other(work),
    }
}

fn by_fio(name: &'static str) -> Row {
    // Made once, and there until the end.
    let job: &FioJob = Box::leak(Box::new(FioJob::named(name)));
    let goal = if job.depth.is_some() { GOAL_AIO } else { GOAL };
    row(name, Some(goal), job.job.block_bytes, job)
}

pub(crate) fn all() -> Vec<Row> {
    let programs = [
        row("build-small", Some(GOAL_BUILD), 0, &Project::Small),
        row("build-cargo", Some(GOAL_BUILD), 0, &Project::Cargo),
        row("git-status", Some(GOAL_CACHED), 0, &Git::Status),
        row("git-clone", None, 0, &Git::Clone),
        row("make-idle", Some(GOAL_CACHED), 0, &Idle::Make),
        row("ninja-idle", Some(GOAL_CACHED), 0, &Idle::Ninja),
        row("cargo-idle", Some(GOAL_CACHED), 0, &Idle::Cargo),
    ];
    let by_fio = FIO.into_iter().chain(["write-4k-xattr"]).map(by_fio);
    by_fio.chain(programs).chain(loops::ROWS).collect()
}

/// Names of several rows.
pub(crate) fn sets() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        ("usual", USUAL.to_vec()),
        ("transports", TRANSPORTS.to_vec()),
        ("passthrough", [FIO.as_slice(), PASSTHROUGH].concat()),
        ("builds", vec!["build-small", "build-cargo"]),
        ("goals", [GOALS, REACHING, REACHING_IN_TREES].concat()),
    ]
}

/// The table that `cargo xtask bench` has always made.
const USUAL: &[&str] = &[
    "random-read-4k-cold",
    "random-read-4k-warm",
    "random-write-4k-loop",
    "append-4k",
    "mmap-random-read-4k-cold",
    "read-128k-cold",
    "read-1m-cold",
    "direct-read-1m-cold",
    "append-1m",
    "open-close",
    "stat-one-warm",
    "stat-cold",
    "stat-birth-cold",
    "stat-missing",
    "readdir-cold",
    "small-file-read-cold",
    "create",
    "create-write-4k",
    "mkdir",
    "rename",
    "unlink",
];

/// The rows that a comparison of transports is about. The floor can do all of them.
pub(crate) const TRANSPORTS: &[&str] = &[
    "read-128k-cold",
    "read-1m-cold",
    "direct-read-1m-cold",
    "mmap-random-read-4k-cold",
    "random-read-4k-cold",
    "random-write-4k-loop",
    "stat-cold",
    "open-close",
    "create",
    "unlink",
    "rename",
];

/// Files that the kernel uses by itself, besides what fio does: cold reads, and what it costs to have such files.
const PASSTHROUGH: &[&str] = &[
    // The lower file system's cache is empty as well.
    "random-read-4k-cold",
    "read-1m-cold",
    "mmap-random-read-4k-cold",
    // Where it costs: every file is registered before it is used.
    "open-close",
    "open-close-write",
    "small-file-read-cold",
    "create-write-4k",
];

/// What the project's goals and its table of peers are about besides [`REACHING`], but for builds. Which targets say
/// something in a row: see the suite of that name.
const GOALS: &[&str] = &[
    "read-4k",
    "read-4k-cold",
    // First, for the requests: of files that have attributes it says more than the next.
    "write-4k-xattr",
    "write-4k",
    "random-read-4k",
    "random-read-4k-cold",
    "random-write-4k",
    "read-1m",
    "read-1m-cold",
    "write-1m",
    "mmap-read-4k",
    "mmap-random-read-4k",
    "mmap-random-write-4k",
    "direct-random-read-4k",
    "direct-random-write-4k",
    "direct-read-1m",
    "direct-write-1m",
    "aio16-random-read-4k",
    "aio64-random-read-4k",
    "aio16-random-write-4k",
    "aio64-random-write-4k",
    "stat-warm",
    "lookup-warm",
    "readlink-warm",
    "find-warm",
    "find-stat-warm",
    "small-file-read-warm",
    "git-status",
    "make-idle",
    "ninja-idle",
    "cargo-idle",
];

/// Rows in which every operation reaches the server.
pub(crate) const REACHING: &[&str] = &[
    "stat-cold",
    "stat-missing",
    "open-close",
    "lookup-cold",
    "readlink-cold",
    "small-file-read-cold",
    "create",
    "create-write-4k",
    "rename",
    "unlink",
    "mkdir",
    "rmdir",
];
/// The same of whole trees: several requests are one operation.
pub(crate) const REACHING_IN_TREES: &[&str] = &["find-cold", "find-stat-cold"];

#[cfg(test)]
mod tests;

//! Rows of programs are run once, small, on a file system without a mount, and must have done what they say.

use crate::{LAB, fio};
use std::fs;
use std::io;
use std::time::Duration;
use tempfile::TempDir;
use thrufs_bench::errand::{Done, Errand};
use thrufs_bench::job::data::ATTRIBUTE;
use thrufs_bench::row::{Work, named};

/// A measurement in a directory of its own, in which the mount would be the same as what lies beneath.
struct Ground {
    _directory: TempDir,
    errand: Errand,
}

/// Runs a row; what the machine does not have is no failure.
fn run(name: &str, each: bool) -> Option<(Ground, Done)> {
    thrufs_bench::extend(&LAB);
    let directory = tempfile::tempdir().unwrap();
    let beneath = directory.path().join("measurement");
    fs::create_dir(&beneath).unwrap();
    let errand = Errand {
        seen: beneath.clone(),
        beneath,
        percent: 1,
        limit: Duration::from_secs(600),
        once: false,
        each,
    };
    let row = named(name).unwrap();
    let Work::Other(program) = row.work else {
        panic!("{name} is not of this program");
    };
    if let Some(why) = program.missing() {
        thrufs_test_report::skipped(&why);
        return None;
    }
    let done = row.prepare(&errand).and_then(|ready| ready(&errand));
    let done = match done {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => return None,
        done => done.unwrap_or_else(|error| panic!("{name}: {error}")),
    };
    assert!(done.operations > 0 && done.end > done.start, "{name}");
    let _directory = directory;
    Some((Ground { _directory, errand }, done))
}

#[test]
fn reads_and_writes_by_fio_go_through_the_whole_file() {
    for name in [
        "read-4k",
        "write-1m",
        "write-4k-fsync",
        "direct-read-1m",
        "aio16-random-write-4k",
        "mmap-random-write-4k",
    ] {
        let Some((ground, done)) = run(name, false) else {
            continue;
        };
        let job = fio::FioJob::named(name).job;
        let bytes = job.file_bytes(1) * u64::from(job.passes);
        assert_eq!(done.operations * job.block_bytes, bytes, "{name}");
        let length = fs::metadata(ground.errand.beneath.join("file"))
            .unwrap()
            .len();
        assert_eq!(length, job.file_bytes(1), "{name}");
    }
}

#[test]
fn every_operation_has_a_latency_where_that_is_asked_for() {
    for name in ["random-read-4k", "git-status"] {
        let Some((_, done)) = run(name, true) else {
            continue;
        };
        assert_eq!(done.each.len() as u64, done.operations, "{name}");
        assert!(done.each.iter().all(|&time| time > 0), "{name}");
    }
}

#[test]
fn attributes_are_there_where_a_row_is_about_them() {
    let Some((ground, _)) = run("write-4k-xattr", false) else {
        return;
    };
    let file = fs::File::open(ground.errand.beneath.join("file")).unwrap();
    let mut value = [0; 8];
    assert_eq!(rustix::fs::fgetxattr(&file, ATTRIBUTE, &mut value), Ok(1));
}

#[test]
fn programs_leave_what_they_make() {
    if let Some((ground, done)) = run("build-small", false) {
        assert!(done.operations == 1 && done.each.is_empty());
        assert!(ground.errand.beneath.join("project/program").is_file());
    }
    if let Some((_ground, done)) = run("git-status", false) {
        assert_eq!(done.operations, 10);
    }
}

//! Every row of this program is run once, small, on a file system without a mount, and must have done what it says.

#[path = "../../../crates/bench/src/row/tests/measured.rs"]
mod measured;

use crate::{LAB, fio};
use measured::Trial;
use std::fs;
use thrufs_bench::job::data::ATTRIBUTE;
use thrufs_bench::row::{Row, Work, named};
use thrufs_bench::task::{Done, Task};

/// Runs a row of a program; what the machine does not have is no failure.
fn run(name: &str, each: bool) -> Option<(Trial, Done)> {
    thrufs_bench::extend(&LAB);
    let row = named(name).unwrap();
    let Work::Other(program) = row.work else {
        panic!("{name} is not of this program");
    };
    if let Some(why) = program.missing() {
        thrufs_test_report::skipped(&why);
        return None;
    }
    let mut trial = Trial::new();
    trial.task.each = each;
    let done = trial.done(row)?;
    Some((trial, done))
}

#[test]
fn every_loop_does_all_of_its_operations_and_takes_no_more_place_than_it_says() {
    thrufs_bench::extend(&LAB);
    for row in &super::loops::ROWS {
        measured::check(named(row.name).unwrap());
    }
}

#[test]
fn create_rmdir_and_append_leave_what_they_should() {
    thrufs_bench::extend(&LAB);
    let (trial, done) = measured::run("create").unwrap();
    let made = trial.measured("made");
    assert_eq!(made.len() as u64, done.operations);
    assert!(
        made.iter()
            .all(|path| fs::metadata(path).unwrap().len() == 0)
    );
    let (trial, _) = measured::run("rmdir").unwrap();
    assert!(trial.measured("directory").is_empty());
    let (trial, done) = measured::run("append-1m").unwrap();
    let file = trial.task.beneath.join("measured/new");
    assert_eq!(fs::metadata(file).unwrap().len(), done.operations << 20);
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
        let Some((trial, done)) = run(name, false) else {
            continue;
        };
        let job = fio::FioJob::named(name).job;
        let bytes = job.file_bytes(1) * u64::from(job.passes);
        assert_eq!(done.operations * job.block_bytes, bytes, "{name}");
        let length = fs::metadata(trial.task.beneath.join("file")).unwrap().len();
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
    let Some((trial, _)) = run("write-4k-xattr", false) else {
        return;
    };
    let file = fs::File::open(trial.task.beneath.join("file")).unwrap();
    let mut value = [0; 8];
    assert_eq!(rustix::fs::fgetxattr(&file, ATTRIBUTE, &mut value), Ok(1));
}

#[test]
fn programs_leave_what_they_make() {
    if let Some((trial, done)) = run("build-small", false) {
        assert!(done.operations == 1 && done.each.is_empty());
        assert!(trial.task.beneath.join("project/program").is_file());
    }
    for name in ["git-status", "make-idle", "ninja-idle", "cargo-idle"] {
        if let Some((_ground, done)) = run(name, false) {
            assert_eq!(done.operations, 10, "{name}");
        }
    }
}

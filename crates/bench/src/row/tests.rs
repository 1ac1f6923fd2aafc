//! Every row is run once, small, on a file system without a mount, and must have done what it says.

mod measured;

use super::{Row, Task, Work, named, names};
use crate::job::own::WRITTEN;
use crate::task::Done;
use crate::workload::BLOCK;
use measured::{Trial, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[test]
fn every_row_does_all_of_its_operations_and_takes_no_more_place_than_it_says() {
    for name in names() {
        measured::check(named(name).unwrap());
    }
}

#[test]
fn create_and_mkdir_leave_what_they_make() {
    for (name, size, is_directory) in [("create-write-4k", BLOCK as u64, false), ("mkdir", 0, true)]
    {
        let (trial, done) = run(name).unwrap();
        let made = trial.measured("made");
        assert_eq!(made.len() as u64, done.operations, "{name}");
        for path in made {
            let found = fs::symlink_metadata(path).unwrap();
            assert_eq!(found.is_dir(), is_directory, "{name}");
            assert!(is_directory || found.len() == size, "{name}");
        }
    }
}

#[test]
fn unlink_and_rename_leave_no_old_names() {
    let (trial, _) = run("unlink").unwrap();
    assert!(trial.measured("file").is_empty());
    let (trial, done) = run("rename").unwrap();
    let files = trial.measured("file");
    assert_eq!(files.len() as u64, done.operations);
    assert!(
        files
            .iter()
            .all(|path| path.extension().unwrap() == "renamed")
    );
}

#[test]
fn a_new_file_is_as_long_as_what_was_written() {
    let (trial, done) = run("append-4k").unwrap();
    let file = trial.task.beneath.join("measured/new");
    assert_eq!(fs::metadata(file).unwrap().len(), done.operations * 4096);
}

#[test]
fn writes_fill_the_file_and_reads_leave_it() {
    for row in names().into_iter().map(|name| named(name).unwrap()) {
        let (Work::Data(job), name) = (&row.work, row.name) else {
            continue;
        };
        let Some((trial, _)) = run(name) else {
            continue;
        };
        let file = fs::read(trial.task.beneath.join("file")).unwrap();
        let is_written = file.iter().all(|&byte| byte == WRITTEN);
        assert_eq!(is_written, job.write, "{name}");
    }
}

#[test]
fn kept_trees_are_made_once() {
    let trial = Trial::new();
    let row = named("find-stat-cold").unwrap();
    assert_eq!(trial.done(row).unwrap().operations, 80);
    let marks: Vec<PathBuf> = fs::read_dir(trial.task.kept_beneath().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    assert_eq!(marks.len(), 2, "the tree and that of the warm-up");
    let before: Vec<_> = marks.iter().map(|mark| created(mark)).collect();
    assert_eq!(trial.done(row).unwrap().operations, 80);
    assert_eq!(
        marks.iter().map(|mark| created(mark)).collect::<Vec<_>>(),
        before
    );
}

fn created(path: &Path) -> (u64, i64) {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(path).unwrap();
    (found.ino(), found.ctime_nsec())
}

#[test]
fn a_limit_ends_every_loop_of_our_own() {
    for name in [
        "stat-cold",
        "mkdir",
        "find-stat-warm",
        "append-4k",
        "read-1m-loop",
        "write-1m-loop",
    ] {
        let mut trial = Trial::new();
        trial.task.limit = Duration::ZERO;
        trial.task.percent = 10;
        let done = trial.done(named(name).unwrap()).unwrap();
        // So many begin before the clock is looked at.
        assert_eq!(done.operations, 16, "{name}");
    }
}

#[test]
fn every_operation_has_a_latency_where_that_is_asked_for() {
    for name in ["stat-cold", "random-read-4k-loop"] {
        let mut trial = Trial::new();
        trial.task.each = true;
        let done = trial.done(named(name).unwrap()).unwrap();
        assert_eq!(done.each.len() as u64, done.operations, "{name}");
        assert!(
            done.each.iter().all(|&nanoseconds| nanoseconds > 0),
            "{name}"
        );
    }
}

//! Every row is run once, small, on a file system without a mount, and must have done what it says.

use super::list::{all, by_name, listed, text};
use super::{Done, Row, Task, Work};
use crate::data::{WRITTEN, file_bytes};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// A measurement in a directory of its own: what would be the mount is the directory itself.
struct Trial {
    top: TempDir,
    task: Task,
}

impl Trial {
    fn new() -> Trial {
        let top = tempfile::tempdir().unwrap();
        let beneath = top.path().join("measurement");
        fs::create_dir(&beneath).unwrap();
        let (seen, limit) = (beneath.clone(), Duration::from_secs(600));
        let (job, percent, once) = (0, 1, false);
        let task = Task {
            beneath,
            seen,
            job,
            percent,
            limit,
            once,
        };
        Trial { top, task }
    }

    /// None where the machine does not have what the row is about.
    fn done(&self, row: &'static Row) -> Option<Done> {
        match row.prepare(&self.task).and_then(|ready| ready(&self.task)) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
            Err(error) => panic!("{}: {error}", row.name),
            Ok(done) => Some(done),
        }
    }
}

#[test]
fn every_row_does_all_of_its_operations() {
    for row in all() {
        let (name, trial) = (row.name, Trial::new());
        let Some(done) = trial.done(row) else {
            continue;
        };
        let file = fs::read(trial.task.beneath.join("file"));
        let expected = match &row.work {
            Work::Loop(work) => (row.operations(1) * work.repeats) as u64,
            Work::Data(job) => {
                let is_written = file.unwrap().iter().all(|&byte| byte == WRITTEN);
                assert_eq!(is_written, job.write, "{name}");
                file_bytes(1) * u64::from(job.passes) / row.bytes
            }
        };
        assert_eq!(done.operations, expected, "{name}");
        assert!(done.end > done.start, "{name}");
    }
}

#[test]
fn kept_trees_are_made_once_and_a_limit_ends_a_loop() {
    let mut trial = Trial::new();
    let row = by_name("find-stat-cold").unwrap();
    let trees = |trial: &Trial| -> BTreeSet<(PathBuf, u64)> {
        let kept = fs::read_dir(trial.top.path().join("kept-0")).unwrap();
        let paths = kept.map(|entry| entry.unwrap().path());
        paths
            .map(|path| (path.clone(), fs::metadata(path).unwrap().ino()))
            .collect()
    };
    assert_eq!(trial.done(row).unwrap().operations, 80);
    let before = trees(&trial);
    assert_eq!(before.len(), 2, "the tree and that of the warm-up");
    trial.task.limit = Duration::ZERO;
    // So many begin before the clock is looked at.
    assert_eq!(trial.done(row).unwrap().operations, 16);
    assert_eq!(trees(&trial), before);
}

#[test]
fn rows_and_sets_are_listed_by_name() {
    let names = |list: &str| {
        listed(list)
            .unwrap()
            .iter()
            .map(|row| row.name)
            .collect::<Vec<_>>()
    };
    let mixed = names("mkdir,quick,mkdir");
    assert_eq!(
        (mixed.len(), mixed[0], mixed[1]),
        (15, "mkdir", "random-read-4k-loop")
    );
    assert_eq!(names("full").len(), all().count());
    let everything = text(None).unwrap();
    for row in all() {
        assert!(everything.contains(row.name), "{}", row.name);
        assert_eq!(row.cold, row.name.ends_with("-cold"), "{}", row.name);
    }
    let refused = listed("mkdir,stat-m").err().unwrap();
    assert!(
        refused.starts_with("no row stat-m; there are stat-missing;"),
        "{refused}"
    );
}

//! Rows that are measured once, small, on a file system without a mount: for tests here and in `thrufs-lab`.

use super::{Done, Row, Task, Work, named};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A measurement in a directory of its own: what would be the mount is the directory itself.
pub(super) struct Trial {
    _directory: TempDir,
    pub(super) task: Task,
}

impl Trial {
    pub(super) fn new() -> Trial {
        let directory = tempfile::tempdir().unwrap();
        let beneath = directory.path().join("measurement");
        fs::create_dir(&beneath).unwrap();
        Trial {
            task: Task {
                seen: beneath.clone(),
                beneath,
                percent: 1,
                limit: Duration::from_secs(600),
                once: false,
                each: false,
            },
            _directory: directory,
        }
    }

    /// None where the machine does not have what the row is about.
    pub(super) fn done(&self, row: &'static Row) -> Option<Done> {
        let done = row.prepare(&self.task).and_then(|ready| ready(&self.task));
        let done = match done {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return None,
            done => done.unwrap_or_else(|error| panic!("{}: {error}", row.name)),
        };
        assert!(done.operations > 0 && done.end > done.start, "{}", row.name);
        Some(done)
    }

    /// Of names in the directory that a loop works in, those that begin with `stem`.
    pub(super) fn measured(&self, stem: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.task.beneath.join("measured")).unwrap();
        entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                path.file_name()
                    .unwrap()
                    .to_string_lossy()
                    .starts_with(stem)
            })
            .collect()
    }
}

/// Runs a row; what the machine does not have is no failure.
pub(super) fn run(name: &str) -> Option<(Trial, Done)> {
    let trial = Trial::new();
    let done = trial.done(named(name).unwrap())?;
    Some((trial, done))
}

/// Runs a loop, and looks at what it has done and at the place that it took.
pub(super) fn check(row: &'static Row) {
    let name = row.name;
    let trial = Trial::new();
    let Some(done) = trial.done(row) else {
        return;
    };
    match &row.work {
        Work::Loop(work) => {
            let all = row.scaled(1) * work.repeats;
            assert_eq!(done.operations, all as u64, "{name}");
        }
        Work::Data(job) => {
            let bytes = job.file_bytes(1) * u64::from(job.passes);
            assert_eq!(done.operations * row.bytes, bytes, "{name}");
            let file = trial.task.beneath.join("file");
            let length = fs::metadata(file).unwrap().len();
            assert_eq!(length, job.file_bytes(1), "{name}");
        }
        Work::Other(_) => {}
    }
    let top = trial.task.beneath.parent().unwrap();
    let ((bytes, inodes), needs) = (taken(top), row.needs(1));
    assert!(bytes <= needs.bytes, "{name}: {bytes} bytes");
    assert!(inodes <= needs.inodes, "{name}: {inodes} inodes");
}

/// Bytes of blocks and inodes beneath, links counted once.
fn taken(top: &Path) -> (u64, u64) {
    let (mut bytes, mut inodes) = (0, 0);
    for entry in fs::read_dir(top).unwrap() {
        let path = entry.unwrap().path();
        let found = fs::symlink_metadata(&path).unwrap();
        let names = if found.is_dir() { 1 } else { found.nlink() };
        bytes += found.blocks() * 512 / names;
        inodes += 1;
        if found.is_dir() {
            let (more_bytes, more_inodes) = taken(&path);
            bytes += more_bytes;
            inodes += more_inodes;
        }
    }
    (bytes, inodes)
}

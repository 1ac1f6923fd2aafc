//! Every row is run once, small, on a file system without a mount, and must have done what it says.

use super::{Errand, Row, Work, named, names};
use crate::errand::Done;
use crate::job::own::WRITTEN;
use crate::workload::{BLOCK, REPEATS};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A measurement in a directory of its own, in which the mount would be the same as what lies beneath.
struct Ground {
    _directory: TempDir,
    errand: Errand,
}

impl Ground {
    fn new() -> Ground {
        Ground::within(&std::env::temp_dir())
    }

    fn within(top: &Path) -> Ground {
        let directory = tempfile::tempdir_in(top).unwrap();
        let beneath = directory.path().join("measurement");
        fs::create_dir(&beneath).unwrap();
        Ground {
            errand: Errand {
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

    fn done(&self, row: &'static Row) -> io::Result<Done> {
        row.prepare(&self.errand)?(&self.errand)
    }

    /// Of names in the directory that a loop works in, those that begin with `stem`.
    fn measured(&self, stem: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.errand.beneath.join("measured")).unwrap();
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
fn run(name: &str) -> Option<(Ground, Done)> {
    let ground = Ground::new();
    match ground.done(named(name).unwrap()) {
        Ok(done) => {
            assert!(done.operations > 0, "{name}");
            assert!(done.end > done.start, "{name}");
            Some((ground, done))
        }
        Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
        Err(error) => panic!("{name}: {error}"),
    }
}

#[test]
fn every_loop_does_all_of_its_operations() {
    for row in names().into_iter().map(|name| named(name).unwrap()) {
        let Work::Loop(work) = &row.work else {
            continue;
        };
        let (_ground, done) = run(row.name).expect("loops need nothing");
        let scaled = row.scaled(1) as u64;
        // Those that are warm go round, but for those that are about a single file.
        let goes_round = work.warm.is_some() && row.goal.is_some();
        let times = if goes_round { REPEATS as u64 } else { 1 };
        assert_eq!(done.operations, scaled * times, "{}", row.name);
    }
}

#[test]
fn what_is_made_is_there() {
    for (name, size, is_directory) in [
        ("create", 0, false),
        ("create-write-4k", BLOCK as u64, false),
        ("mkdir", 0, true),
    ] {
        let (ground, done) = run(name).unwrap();
        let made = ground.measured("made");
        assert_eq!(made.len() as u64, done.operations, "{name}");
        for path in made {
            let found = fs::symlink_metadata(path).unwrap();
            assert_eq!(found.is_dir(), is_directory, "{name}");
            assert!(is_directory || found.len() == size, "{name}");
        }
    }
}

#[test]
fn what_is_removed_or_renamed_is_gone() {
    for (name, stem) in [("unlink", "file"), ("rmdir", "directory")] {
        let (ground, _) = run(name).unwrap();
        assert!(ground.measured(stem).is_empty(), "{name}");
    }
    let (ground, done) = run("rename").unwrap();
    let files = ground.measured("file");
    assert_eq!(files.len() as u64, done.operations);
    assert!(
        files
            .iter()
            .all(|path| path.extension().unwrap() == "renamed")
    );
}

#[test]
fn a_new_file_is_as_long_as_what_was_written() {
    for (name, block) in [("append-4k", 4096), ("append-1m", 1 << 20)] {
        let (ground, done) = run(name).unwrap();
        let file = ground.errand.beneath.join("measured/new");
        let length = fs::metadata(file).unwrap().len();
        assert_eq!(length, done.operations * block, "{name}");
    }
}

#[test]
fn reads_and_writes_go_through_the_whole_file() {
    for name in [
        "random-read-4k-loop",
        "read-1m-loop",
        "random-write-4k-loop",
        "write-4k-fsync-loop",
        "direct-read-1m-loop",
        "direct-random-write-4k-loop",
        "mmap-random-read-4k-loop",
        "mmap-random-write-4k-loop",
        "random-read-4k-cold",
        "random-read-4k-warm",
    ] {
        let Some((ground, done)) = run(name) else {
            continue;
        };
        let row = named(name).unwrap();
        let Work::Data(job) = &row.work else {
            panic!("{name} reads or writes");
        };
        let bytes = job.file_bytes(1) * u64::from(job.passes);
        assert_eq!(done.operations * row.bytes, bytes, "{name}");
        let file = ground.errand.beneath.join("file");
        assert_eq!(
            fs::metadata(&file).unwrap().len(),
            job.file_bytes(1),
            "{name}"
        );
        let is_ours = |byte: &u8| *byte == WRITTEN;
        if job.write {
            assert!(fs::read(&file).unwrap().iter().all(is_ours), "{name}");
        }
        if !job.write {
            assert!(!fs::read(&file).unwrap().iter().all(is_ours), "{name}");
        }
    }
}

#[test]
fn what_is_kept_is_made_once() {
    let ground = Ground::new();
    let row = named("find-stat-cold").unwrap();
    assert_eq!(ground.done(row).unwrap().operations, 80);
    let marks: Vec<PathBuf> = fs::read_dir(ground.errand.kept_beneath().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    assert_eq!(marks.len(), 2, "the tree and that of the warm-up");
    let before: Vec<_> = marks.iter().map(|mark| created(mark)).collect();
    assert_eq!(ground.done(row).unwrap().operations, 80);
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
        "create",
        "find-warm",
        "append-1m",
        "read-1m-loop",
        "write-1m-loop",
    ] {
        let mut ground = Ground::new();
        ground.errand.limit = Duration::ZERO;
        ground.errand.percent = 10;
        let done = ground.done(named(name).unwrap()).unwrap();
        // So many begin before the clock is looked at.
        assert_eq!(done.operations, 16, "{name}");
    }
}

#[test]
fn every_operation_has_a_latency_where_that_is_asked_for() {
    for name in ["stat-cold", "random-read-4k-loop"] {
        let mut ground = Ground::new();
        ground.errand.each = true;
        let done = ground.done(named(name).unwrap()).unwrap();
        assert_eq!(done.each.len() as u64, done.operations, "{name}");
        assert!(
            done.each.iter().all(|&nanoseconds| nanoseconds > 0),
            "{name}"
        );
    }
}

#[test]
fn no_row_takes_more_than_it_says() {
    for row in names().into_iter().map(|name| named(name).unwrap()) {
        let name = row.name;
        let ground = Ground::new();
        match ground.done(row) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => continue,
            outcome => outcome.unwrap(),
        };
        let top = ground.errand.beneath.parent().unwrap();
        let ((bytes, inodes), needs) = (taken(top), row.needs(1));
        assert!(bytes <= needs.bytes, "{name}: {bytes} bytes");
        assert!(inodes <= needs.inodes, "{name}: {inodes} inodes");
    }
}

/// Bytes of blocks and inodes beneath, links counted once.
fn taken(top: &Path) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let (mut bytes, mut inodes) = (0, 0);
    for entry in fs::read_dir(top).unwrap() {
        let found = fs::symlink_metadata(entry.unwrap().path()).unwrap();
        let names = if found.is_dir() { 1 } else { found.nlink() };
        bytes += found.blocks() * 512 / names;
        inodes += 1;
    }
    for entry in fs::read_dir(top).unwrap() {
        let path = entry.unwrap().path();
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            let (more_bytes, more_inodes) = taken(&path);
            bytes += more_bytes;
            inodes += more_inodes;
        }
    }
    (bytes, inodes)
}

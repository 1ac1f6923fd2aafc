//! Rows that run git, on a repository that is made up and kept for the run.

use crate::command::done;
use std::fs::{self, File, FileTimes};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};
use thrufs_bench::clock::Clock;
use thrufs_bench::kept::Claim;
use thrufs_bench::results::Group;
use thrufs_bench::row::{Needs, Program, Ready, timed};
use thrufs_bench::task::Task;

/// What git is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Git {
    /// `git status` of a clean tree that was looked at before.
    Status,
    /// `git clone` of the repository, which is read beneath.
    Clone,
}

/// Files of the tree at the usual amount of work.
const FILES: usize = 2000;
const FILES_OF_A_DIRECTORY: usize = 20;
const FILE_BYTES: u64 = 2048;
/// Of a measurement.
const STATUSES: usize = 10;

impl Program for Git {
    fn title(&self) -> String {
        match self {
            Git::Status => "git status, cached",
            Git::Clone => "git clone",
        }
        .to_owned()
    }

    fn about(&self) -> String {
        match self {
            Git::Status => {
                "One operation is git status of a clean tree of 2,000 files in 100 directories. It was looked at \
                 before."
            }
            Git::Clone => {
                "One operation is git clone, with a checkout of 2,000 files in 100 directories. The repository \
                 is read beneath."
            }
        }
        .to_owned()
    }

    fn group(&self) -> Group {
        Group::Programs
    }

    fn engine(&self) -> String {
        "git".to_owned()
    }

    fn missing(&self) -> Option<String> {
        let version = Command::new("git")
            .arg("--version")
            .stdin(Stdio::null())
            .output();
        let is_there = version.is_ok_and(|output| output.status.success());
        (!is_there).then(|| "there is no git".to_owned())
    }

    fn needs(&self, percent: usize) -> Needs {
        let files = files(percent) as u64;
        Needs {
            // As much again for what git packs.
            bytes: 2 * files * FILE_BYTES,
            // What git makes for itself: some 50.
            inodes: files + files / FILES_OF_A_DIRECTORY as u64 + 64,
        }
    }

    fn is_alone(&self) -> bool {
        true
    }

    /// Has the repository ready, and keeps others from it. An operation is one `git`.
    fn prepare(&self, task: &Task) -> io::Result<Ready> {
        let count = files(task.percent);
        let kept = task.kept_beneath()?;
        let claim = Claim::take(&kept, &format!("repository-{count}"), |path| {
            make(path, count)
        })?;
        if *self == Git::Clone {
            let repository = kept.join(&claim.name);
            return Ok(Box::new(move |task| {
                let _repository = &claim;
                let into = task.seen.join("clone");
                timed(task, |clock| clone(&repository, &into, clock))
            }));
        }
        // The one writes down what the files are like here, the other finds it written.
        let tree = task.kept_seen().join(&claim.name);
        git(&tree, STATUS)?;
        git(&tree, STATUS)?;
        Ok(Box::new(move |task| {
            let tree = task.kept_seen().join(&claim.name);
            timed(task, |clock| status(&tree, clock))
        }))
    }
}

fn clone(repository: &Path, into: &Path, clock: &mut Clock) -> io::Result<()> {
    clock.more();
    let (from, to) = (repository.to_string_lossy(), into.to_string_lossy());
    // As from another machine: by a pack.
    git(
        Path::new("/"),
        &["clone", "--quiet", "--no-local", &from, &to],
    )?;
    clock.stop();
    let cloned = git(into, STATUS)?;
    if !cloned.is_empty() {
        return Err(io::Error::other("git takes the clone for changed"));
    }
    fs::remove_dir_all(into)
}

const STATUS: &[&str] = &["status", "--porcelain"];

fn status(tree: &Path, clock: &mut Clock) -> io::Result<()> {
    for _ in 0..STATUSES {
        if !clock.more() {
            break;
        }
        let changed = git(tree, &["--no-optional-locks", "status", "--porcelain"])?;
        if !changed.is_empty() {
            return Err(io::Error::other("git takes the tree for changed"));
        }
    }
    Ok(())
}

/// A repository of so many files, committed and packed.
fn make(tree: &Path, count: usize) -> io::Result<()> {
    fs::create_dir(tree)?;
    // Older than the index, or git would have to look into each to be sure.
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    let times = FileTimes::new().set_modified(then).set_accessed(then);
    for number in 0..count {
        let path = path(tree, number);
        if number.is_multiple_of(FILES_OF_A_DIRECTORY) {
            fs::create_dir_all(path.parent().unwrap_or(tree))?;
        }
        fs::write(&path, contents(number))?;
        File::options().write(true).open(&path)?.set_times(times)?;
    }
    git(tree, &["init", "--quiet"])?;
    git(tree, &["add", "--all"])?;
    git(tree, &["commit", "--quiet", "--message=everything"])?;
    git(tree, &["repack", "--quiet", "-a", "-d"]).map(drop)
}

fn path(tree: &Path, number: usize) -> PathBuf {
    let directory = number / FILES_OF_A_DIRECTORY;
    tree.join(format!(
        "part-{}/directory-{directory}/file-{number}",
        directory / 10
    ))
}

/// Lines that do not pack into nothing.
fn contents(number: usize) -> String {
    let mut state = number as u64 + 1;
    let mut text = String::new();
    while text.len() < FILE_BYTES as usize {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{state:x}\n"));
    }
    text
}

fn files(percent: usize) -> usize {
    (FILES * percent / 100).max(FILES_OF_A_DIRECTORY)
}

/// Without settings of the user or the system; gives its output.
fn git(directory: &Path, words: &[&str]) -> io::Result<Vec<u8>> {
    let mut command = Command::new("git");
    command
        // Nothing in the background, and a tree that another user owns is as good as one's own.
        .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"])
        .args(["-c", "safe.directory=*", "-c", "init.defaultBranch=main"])
        .args(words)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "Benchmark");
        command.env(format!("GIT_{role}_EMAIL"), "benchmark@localhost");
    }
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    done(&mut command)
}

#[cfg(test)]
mod tests {
    use super::{git, make, status};
    use std::time::Duration;
    use thrufs_bench::clock::Clock;

    #[test]
    fn a_dirty_or_incomplete_repository_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("repository");
        make(&tree, 40).unwrap();
        let known = git(&tree, &["ls-files"]).unwrap();
        assert_eq!(known.iter().filter(|&&byte| byte == b'\n').count(), 40);
        let limit = Duration::from_secs(600);
        status(&tree, &mut Clock::start(limit)).unwrap();
        std::fs::write(tree.join("new"), "").unwrap();
        assert!(status(&tree, &mut Clock::start(limit)).is_err());
    }
}

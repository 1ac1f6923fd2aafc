//! A run of tests: its own directory for temporary files, its own mounts and processes, its own list
//! of what was skipped.
//!
//! The chore itself is a second process. As root it has a mount and a process namespace: what it
//! mounts is seen by nobody else, what others mount it does not see, and both its mounts and its
//! processes end with it, however it ends. Without root it has the directory alone.

use crate::mounts;
use crate::skips;
use crate::step::{Failure, Step};
use crate::tools;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Tells the second process that it is one, and what it has to itself.
const INSIDE: &str = "THRUFS_RUN";

/// What [`INSIDE`] says.
const NAMESPACES: &str = "namespaces";
const DIRECTORY: &str = "directory";

/// How the names of directories of runs begin. They are short: sockets have to fit beneath.
const PREFIX: &str = "thrufs-run.";

/// Held while the run lasts.
const LOCK: &str = "lock";

/// Whether this process is inside a run already.
pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Whether everything that is mounted here is this run's.
pub(crate) fn has_namespaces() -> bool {
    std::env::var(INSIDE).is_ok_and(|text| text == NAMESPACES)
}

/// Runs a chore, given as the arguments of this program, inside.
pub(crate) fn chore(arguments: &[String]) -> Result<(), Failure> {
    let directory = Directory::new()?;
    let list = directory.path.join("skipped");
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(format!("cannot find this program: {error}")))?;
    let is_root = tools::is_root()?;
    let step = if is_root {
        // Bash is the first process of the namespace: it waits for those that nobody else waits for.
        // Killed, we take all others along.
        Step::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--mount", "--propagation"])
            .args(["private", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["bash", "-c", "\"$@\"; exit", "xtask"])
            .args([&program])
            .args(arguments)
    } else {
        Step::new(&program).args(arguments)
    };
    let outcome = step
        .env(INSIDE, if is_root { NAMESPACES } else { DIRECTORY })
        .env("TMPDIR", &directory.path)
        .env(skips::LIST, &list)
        .quietly();
    let skipped = skips::report(&list);
    if !is_root {
        mounts::take_away_beneath(&directory.path);
    }
    outcome.and(skipped)
}

/// A directory for everything temporary. It goes with the value.
struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    fn new() -> Result<Self, Failure> {
        let parent = std::env::temp_dir();
        let failure = |error| Failure::new(format!("{}: {error}", parent.display()));
        for path in abandoned(&parent).map_err(failure)? {
            println!(
                "xtask: removing what an interrupted run left: {}",
                path.display()
            );
            mounts::take_away_beneath(&path);
            remove(&path);
        }
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&path).map_err(failure)?;
        let lock = File::create(path.join(LOCK)).map_err(failure)?;
        lock.lock().map_err(failure)?;
        // Users other than root must reach their part of it.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(failure)?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Directories of runs that are over.
fn abandoned(parent: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(parent)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Whoever has made a directory and not yet its lock is alive.
        let lock = path.join(LOCK);
        if name.starts_with(PREFIX) && File::open(lock).is_ok_and(|lock| lock.try_lock().is_ok()) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Removes a directory, but nothing on another file system.
fn remove(path: &Path) {
    let removed = Step::new("rm")
        .args(["-rf", "--one-file-system"])
        .args([path])
        .capture();
    if !matches!(removed, Ok((true, ..))) {
        eprintln!("xtask: not removed: {}", path.display());
    }
}

/// Fails if a run leaves mounts or servers behind.
pub(crate) fn nothing_left(before: &[String]) -> Result<(), Failure> {
    mounts::nothing_left(before)?;
    if !has_namespaces() {
        return Ok(());
    }
    let mut left = Vec::new();
    for turn in 0..600 {
        if turn > 0 {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        left = servers()?;
        if left.is_empty() {
            return Ok(());
        }
    }
    Err(Failure::new(format!(
        "processes left behind: {}",
        left.join(", ")
    )))
}

/// Every process of the namespace that is called as the command is.
fn servers() -> Result<Vec<String>, Failure> {
    let unreadable = |error| Failure::new(format!("/proc: {error}"));
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        // One that has ended and is not waited for has no command line.
        if name.starts_with("thrufs") && !line.is_empty() {
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            found.push(format!("{} ({line})", path.display()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{Directory, LOCK, PREFIX, abandoned};
    use std::fs::{self, File};

    #[test]
    fn only_runs_that_are_over_are_abandoned() {
        let parent = std::env::temp_dir().join(format!("xtask-run-{}", std::process::id()));
        let names = ["1", "2", "3"].map(|name| parent.join(format!("{PREFIX}{name}")));
        for name in &names {
            fs::create_dir_all(name).expect("a directory");
        }
        fs::create_dir(parent.join("other")).expect("a directory");
        let held = File::create(names[0].join(LOCK)).expect("a lock");
        held.lock().expect("a lock");
        File::create(names[1].join(LOCK)).expect("a lock");
        let found = abandoned(&parent).expect("a directory");
        fs::remove_dir_all(&parent).expect("it goes");
        // The third has no lock yet.
        assert_eq!(found, [names[1].clone()]);
        drop(held);
    }

    #[test]
    fn a_directory_goes_with_its_value() {
        let path = Directory::new().expect("a directory").path.clone();
        assert!(!path.exists());
    }
}

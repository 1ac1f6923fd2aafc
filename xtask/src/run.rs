//! A run of tests: its own directory for temporary files, mounts and processes, and list of skips.
//!
//! The chore itself is a second process, in a mount and a process namespace: its mounts and those of the
//! machine do not meet, and its mounts and processes end with it.

use crate::failure::Failure;
use crate::mounts;
use crate::skips;
use crate::step::Step;
use crate::tools::{self, Tier};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Marks the second process.
const INSIDE: &str = "THRUFS_RUN";

/// Prefix of the directories of runs. Short: sockets have to fit beneath.
const PREFIX: &str = "thrufs-run.";

const LOCK: &str = "lock";

/// Installs the tools of a tier, then runs the chore in this program's arguments inside; fails if it leaves
/// mounts or servers behind.
pub(crate) fn inside(
    arguments: &[String],
    tier: Tier,
    chore: &dyn Fn() -> Result<(), Failure>,
) -> Result<(), Failure> {
    if std::env::var_os(INSIDE).is_none() {
        tools::set_up(tier)?;
        return outside(arguments);
    }
    mounts::prepare()?;
    let before = mounts::of_tests()?;
    let outcome = chore();
    // The chore's own failure comes first.
    outcome.and(nothing_left(&before))
}

/// Runs this program again in namespaces of its own.
fn outside(arguments: &[String]) -> Result<(), Failure> {
    let (directory, _lock) = make_directory(&std::env::temp_dir())?;
    let list = directory.join("skipped");
    // Bash is the first process of the namespace: it reaps orphans.
    let outcome = Step::confined()
        .args(["-c", "\"$@\"; exit", "xtask"])
        .args([this()?])
        .args(arguments)
        .env(INSIDE, "1")
        .env("TMPDIR", &directory)
        .env(skips::LIST, &list)
        .quietly();
    let outcome = outcome.map_err(|_| Failure::new("it failed"));
    let skipped = skips::report(&list);
    outcome.and(skipped).and(remove(&directory))
}

/// This program.
pub(crate) fn this() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(Failure::of(Path::new("xtask")))
}

/// Makes the directory for everything temporary, with its lock, and removes those of interrupted runs.
fn make_directory(parent: &Path) -> Result<(PathBuf, File), Failure> {
    for entry in fs::read_dir(parent).map_err(Failure::of(parent))? {
        let path = entry.map_err(Failure::of(parent))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // A directory without a lock yet belongs to a run that starts.
        let lock = File::open(path.join(LOCK));
        if name.starts_with(PREFIX) && lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            let shown = path.display();
            println!("xtask: removing what an interrupted run left: {shown}");
            remove(&path)?;
        }
    }
    let path = parent.join(format!("{PREFIX}{}", std::process::id()));
    let make = || {
        fs::create_dir(&path)?;
        let lock = File::create(path.join(LOCK))?;
        lock.lock()?;
        // Other users must reach their part of it.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(lock)
    };
    let lock = make().map_err(Failure::of(&path))?;
    Ok((path, lock))
}

/// Removes a directory, but nothing on another file system.
fn remove(path: &Path) -> Result<(), Failure> {
    let rm = Step::new("rm").args(["-rf", "--one-file-system"]);
    rm.args([path]).text().map(drop)
}

/// Fails if there are new mounts, or if servers do not end.
fn nothing_left(before: &[String]) -> Result<(), Failure> {
    let mut mounts = mounts::of_tests()?;
    mounts.retain(|point| !before.contains(point));
    let mut servers = servers()?;
    for _ in 0..600 {
        if servers.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(100));
        servers = self::servers()?;
    }
    Failure::if_any("left behind", &[mounts, servers].concat())
}

/// The live processes of the namespace with the command's name.
fn servers() -> Result<Vec<String>, Failure> {
    let ps = Step::new("ps").args(["-eo", "stat=,comm=,pid=,args="]);
    let listed = ps.text()?;
    let is_server = |line: &&str| {
        let name = line.split_whitespace().nth(1);
        !line.starts_with('Z') && name.is_some_and(|name| name.starts_with("thrufs"))
    };
    let servers = listed.lines().filter(is_server);
    Ok(servers.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::{LOCK, PREFIX, make_directory, remove};
    use std::fs::{self, File};

    #[test]
    fn what_interrupted_runs_have_left_goes_with_the_next() {
        let parent = std::env::temp_dir().join(format!("xtask-run-{}", std::process::id()));
        let [held, over, new] = ["h", "o", "n"].map(|name| parent.join(format!("{PREFIX}{name}")));
        for directory in [&held, &over, &new] {
            fs::create_dir_all(directory).expect("a directory");
        }
        let lock = File::create(held.join(LOCK)).expect("a lock");
        lock.lock().expect("a lock");
        File::create(over.join(LOCK)).expect("a lock");
        let (path, _lock) = make_directory(&parent).expect("a directory");
        // The last has no lock yet.
        assert!(path.exists() && held.exists() && new.exists() && !over.exists());
        remove(&parent).expect("it goes");
    }
}

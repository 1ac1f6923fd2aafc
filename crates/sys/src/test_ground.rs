//! Directories on known file systems for the tests of this crate, and skipping with a message.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::RwLock;
use tempfile::TempDir;

use rustix::fs::{CWD, Mode, OFlags};

/// Held for writing by tests that start a process, for reading by those whose descriptors must be closed
/// when they close them: until it executes, a child holds a copy of every descriptor.
pub(crate) static FORKING: RwLock<()> = RwLock::new(());

pub(crate) fn skipped(why: &str) {
    thrufs_test_report::skipped(why);
}

/// Something when the test runs as root; reports a skipped test otherwise.
pub(crate) fn root() -> Option<()> {
    let root = rustix::process::geteuid().is_root().then_some(());
    root.or_else(|| {
        skipped("needs root");
        None
    })
}

/// A new directory on the file system for temporary files.
pub(crate) fn directory() -> TempDir {
    tempfile::Builder::new()
        .prefix("thrufs-sys-")
        .tempdir()
        .unwrap()
}

/// A new directory on a tmpfs and one on the file system of temporary files (often ext4): the two families
/// of behaviour.
pub(crate) fn directories() -> Vec<TempDir> {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    let mut places = vec![directory()];
    let shm = Path::new("/dev/shm");
    if rustix::fs::statfs(shm).is_ok_and(|stat| stat.f_type == TMPFS_MAGIC) {
        let place = tempfile::Builder::new()
            .prefix("thrufs-sys-")
            .tempdir_in(shm);
        places.push(place.unwrap());
    } else {
        skipped("the part on tmpfs: no tmpfs at /dev/shm");
    }
    places
}

/// Opens `path` without following a link in the last component; creates with mode 0666.
pub(crate) fn open(path: impl AsRef<Path>, flags: OFlags) -> OwnedFd {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(CWD, path.as_ref(), flags, Mode::from_raw_mode(0o666)).unwrap()
}

/// Runs `work` in a thread of its own, so that its changes of credentials end with it.
pub(crate) fn in_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        // Its output belongs to the test.
        let name = std::thread::current().name().unwrap_or("?").to_owned();
        let thread = std::thread::Builder::new().name(name);
        thread.spawn_scoped(scope, work).unwrap().join().unwrap()
    })
}

/// The value of `field` in the calling thread's `/proc/thread-self/status`.
pub(crate) fn thread_status(field: &str) -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with(&format!("{field}:")))
        .unwrap();
    line[field.len() + 1..].trim().to_owned()
}

/// Runs a test of this program in a process of its own, where `variable` is set.
pub(crate) fn run_alone(test: &str, variable: &str) {
    let _alone = FORKING.write().unwrap();
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let command = command.args(["--exact", test]).env(variable, "1");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let passed = output.status.success() && text.contains("1 passed");
    assert!(passed, "{text}");
}

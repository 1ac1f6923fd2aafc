//! The machine that the tests run on: its CPUs, and settings that a test changes temporarily.

use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

pub fn cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect()
}

/// A number of `/proc/PID/status`; 0 when the process has ended.
pub fn status(pid: u32, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let value = line.and_then(|line| line.trim_matches([':', '\t', ' ']).split(' ').next());
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// The number of a process's descriptors; 0 when it has ended.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Runs `body` in a thread that is bound to `cpu`, as are its children.
#[track_caller]
pub fn on_cpu<T: Send>(cpu: usize, body: impl FnOnce() -> T + Send) -> T {
    let ran = thread::scope(|scope| {
        scope
            .spawn(move || {
                let mut set = CpuSet::new();
                set.set(cpu);
                sched_setaffinity(None, &set).unwrap();
                body()
            })
            .join()
    });
    ran.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Who has something open on the file system that is mounted at `point`, as `PROCESS NAME: FILE`: also by a copy of
/// the mount in another namespace, which keeps this one busy if it is one of its peers.
pub fn users_of_mount(point: &Path) -> Vec<String> {
    let Ok(stat) = rustix::fs::stat(point) else {
        return Vec::new();
    };
    let (major, minor) = (
        rustix::fs::major(stat.st_dev),
        rustix::fs::minor(stat.st_dev),
    );
    let device = format!("{major}:{minor}");
    let processes = entries_of("/proc").into_iter();
    processes
        .flat_map(|process| users_of_device(&process, &device))
        .collect()
}

/// What a process has open on the mounts of its namespace with a `device`, as `MAJOR:MINOR`.
fn users_of_device(process: &Path, device: &str) -> Vec<String> {
    let table = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
    let mounts = table.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let id = fields.next()?;
        (fields.nth(1) == Some(device)).then(|| format!("mnt_id:\t{id}"))
    });
    let mounts: Vec<_> = mounts.collect();
    if mounts.is_empty() {
        return Vec::new();
    }
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    let user = |file: &Path| format!("{} {}: {}", process.display(), name.trim(), file.display());
    let files = entries_of(process.join("fdinfo")).into_iter();
    let files = files.filter_map(|info| {
        let text = fs::read_to_string(&info).ok()?;
        let is_there = text.lines().any(|line| mounts.iter().any(|it| it == line));
        let file = process.join("fd").join(info.file_name()?);
        is_there.then(|| user(&fs::read_link(file).unwrap_or_default()))
    });
    files.collect()
}

fn entries_of(directory: impl AsRef<Path>) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// A file of the kernel with another value for the lifetime of this object. A process of its own restores
/// the old value, also when this one is killed.
pub struct Changed {
    path: PathBuf,
    before: String,
    guard: Child,
}

impl Changed {
    /// Writes `value` to the file, which a failure leaves as it was.
    pub fn to(path: &Path, value: &str) -> std::io::Result<Self> {
        let before = fs::read_to_string(path)?.trim().to_owned();
        let guard = Command::new("sh")
            .args(["-c", "trap '' INT TERM HUP; read -r _; echo \"$1\" >\"$2\""])
            .args(["sh", &before])
            .arg(path)
            // Closed by the end of this process.
            .stdin(Stdio::piped())
            .spawn()?;
        let changed = Self {
            path: path.to_owned(),
            before,
            guard,
        };
        fs::write(path, value)?;
        Ok(changed)
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
        let now = fs::read_to_string(&self.path).unwrap_or_default();
        if now.trim() != self.before {
            eprintln!("thrufs-tests: {} stays {}", self.path.display(), now.trim());
        }
    }
}

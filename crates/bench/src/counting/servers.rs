//! The processes that serve a mount.

use super::connection::Connection;
use rustix::process::Pid;
use std::path::Path;

/// The processes that have the connection open, as far as this one may see them.
pub(super) fn of_connection(connection: Connection) -> Vec<Pid> {
    let serves = |process: &Pid| holds(*process, connection);
    numbers_in(Path::new("/proc")).filter(serves).collect()
}

/// Whether it holds a descriptor of `/dev/fuse` with that connection (`proc_pid_fdinfo(5)`).
fn holds(process: Pid, Connection(connection): Connection) -> bool {
    let process = process.as_raw_nonzero();
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd"));
    descriptors.into_iter().flatten().flatten().any(|entry| {
        let device = std::fs::read_link(entry.path());
        if !device.is_ok_and(|device| device == Path::new("/dev/fuse")) {
            return false;
        }
        let number = entry.file_name();
        let information = format!("/proc/{process}/fdinfo/{}", number.display());
        let information = std::fs::read_to_string(information).unwrap_or_default();
        information
            .lines()
            .filter_map(|line| line.strip_prefix("fuse_connection:"))
            .any(|value| value.trim().parse() == Ok(connection))
    })
}

/// These processes and all that descend from them, each once.
pub(crate) fn families(tops: &[Pid]) -> Vec<Pid> {
    let mut found = tops.to_vec();
    let mut next = 0;
    while let Some(&process) = found.get(next) {
        next += 1;
        for thread in threads(process) {
            let (process, thread) = (process.as_raw_nonzero(), thread.as_raw_nonzero());
            let children = format!("/proc/{process}/task/{thread}/children");
            let children = std::fs::read_to_string(children).unwrap_or_default();
            for child in children.split_whitespace().filter_map(pid) {
                if !found.contains(&child) {
                    found.push(child);
                }
            }
        }
    }
    found
}

/// The threads of a process.
pub(super) fn threads(process: Pid) -> impl Iterator<Item = Pid> {
    let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
    numbers_in(Path::new(&tasks))
}

/// The entries of a directory whose names are process ids.
fn numbers_in(directory: &Path) -> impl Iterator<Item = Pid> + use<> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| pid(&entry.file_name().to_string_lossy()))
}

fn pid(word: &str) -> Option<Pid> {
    Pid::from_raw(word.parse().ok()?)
}

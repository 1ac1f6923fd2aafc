//! What procfs says of a server's processes: io_uring, stopped threads, resident memory.

use rustix::process::Pid;
use std::path::Path;

/// Whether it has an io_uring; none where that is not permitted.
pub(super) fn has_ring(process: Pid) -> Option<bool> {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero())).ok()?;
    Some(descriptors.flatten().any(|entry| {
        std::fs::read_link(entry.path())
            .is_ok_and(|link| link == Path::new("anon_inode:[io_uring]"))
    }))
}

/// Whether each thread of all of them has stopped (by a signal), or ended. Where that is not permitted, they count as
/// stopped.
pub(super) fn have_stopped(processes: &[Pid]) -> bool {
    let threads = processes
        .iter()
        .filter_map(|process| {
            std::fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).ok()
        })
        .flatten()
        .flatten();
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok())
        .all(|stat| matches!(state(&stat), 'T' | 'Z' | 'X'))
}

/// Of a line as in `/proc/PID/stat` (proc_pid_stat(5)): the name before it may have any characters in it.
fn state(stat: &str) -> char {
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    after.trim_start().chars().next().unwrap_or('X')
}

/// Its resident memory.
pub(super) fn resident_kib(process: Pid) -> u64 {
    let status = format!("/proc/{}/status", process.as_raw_nonzero());
    let status = std::fs::read_to_string(status).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|word| word.parse().ok())
        .unwrap_or(0)
}

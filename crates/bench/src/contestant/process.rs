//! What can be seen of a server from outside.

use std::path::Path;

/// A process and all that descend from it.
pub(super) fn family(top: u32) -> Vec<u32> {
    let mut members = vec![top];
    let mut next = 0;
    while let Some(&member) = members.get(next) {
        next += 1;
        let children = format!("/proc/{member}/task/{member}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        members.extend(
            children
                .split_whitespace()
                .filter_map(|word| word.parse::<u32>().ok()),
        );
    }
    members
}

/// Whether it has an io_uring; none where nobody may look.
pub(super) fn has_ring(process: u32) -> Option<bool> {
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    Some(descriptors.flatten().any(|entry| {
        std::fs::read_link(entry.path())
            .is_ok_and(|link| link == Path::new("anon_inode:[io_uring]"))
    }))
}

/// Its resident memory.
pub(super) fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|word| word.parse().ok())
        .unwrap_or(0)
}

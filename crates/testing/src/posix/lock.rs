//! Shared code of the lock cases.

use std::path::PathBuf;
use std::time::Duration;

use crate::fence::record_lock::Range;
use crate::helper;
use crate::process::Process;

use super::prelude::*;

pub(super) fn one(env: &Env) -> (PathBuf, File) {
    (env.file("file", ""), env.open("file", OFlags::RDWR))
}

pub(super) fn two(env: &Env) -> (File, File) {
    env.file("file", "");
    let open = || env.open("file", OFlags::RDWR);
    (open(), open())
}

pub(super) const fn range(start: i64, len: i64) -> Range {
    Range { start, len }
}

pub(super) fn command(
    name: &str,
    owner: &str,
    kind: &str,
    path: &Path,
    range: Range,
) -> Vec<String> {
    let (start, len) = (range.start.to_string(), range.len.to_string());
    [name, owner, kind, path.to_str().unwrap(), &start, &len]
        .map(str::to_owned)
        .to_vec()
}

/// Whether another process can take the lock.
#[track_caller]
pub(super) fn free(owner: &str, kind: &str, path: &Path, range: Range) -> bool {
    let said = helper::output(&command("lock-try", owner, kind, path, range));
    let busy = format!("errno {}", Errno::AGAIN.raw_os_error());
    assert!(said == "ok" || said == busy, "{said}");
    said == "ok"
}

#[track_caller]
pub(super) fn holder(owner: &str, path: &Path, range: Range) -> Process {
    let holder = helper::start(&command("lock-hold", owner, "write", path, range));
    assert_eq!([holder.line(), holder.line()], ["waiting", "ok"]);
    holder
}

#[track_caller]
pub(super) fn waiter(owner: &str, path: &Path, range: Range) -> Process {
    let waiter = helper::start(&command("lock-hold", owner, "write", path, range));
    assert_eq!(waiter.line(), "waiting");
    assert_eq!(waiter.line_within(Duration::from_millis(200)), None);
    waiter
}

/// Takes a lock that a descriptor held until it was closed. The kernel sends RELEASE to a FUSE server after
/// close(2) has returned, so a moment may pass.
#[track_caller]
pub(super) fn eventually(mut is_taken: impl FnMut() -> bool) {
    let freed = (0..200).any(|_| {
        let taken = is_taken();
        if !taken {
            std::thread::sleep(Duration::from_millis(10));
        }
        taken
    });
    assert!(freed);
}

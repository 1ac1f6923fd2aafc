//! Ending what is left of a run, and removing it.

use crate::plan::Plan;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long processes that were killed may take: one that waits for a server which does not answer ends
/// when that has ended.
const PATIENCE: Duration = Duration::from_secs(30);

/// Has this process be the parent of all that descend from it and lose their own.
pub(super) fn adopt_orphans() {
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
}

/// Ends every process of the run, takes its mounts away, and removes its folders.
pub(super) fn clean_up(plan: &Plan) {
    end_all_children();
    let place = plan.place();
    unmount_below(&place);
    // What is beneath mounts is not to be removed through them; those of others come last, because they
    // may not answer.
    remove(&place);
    remove(&plan.unfinished_out());
    for point in plan.mounts_of_others() {
        remove(&point.join(&plan.scratch));
    }
}

/// Ends children, and theirs, which become ours when they lose their parents.
fn end_all_children() {
    let own = getpid().as_raw_nonzero();
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match wait(WaitOptions::NOHANG) {
            Err(Errno::CHILD) => return,
            Ok(Some(_)) | Err(_) => continue,
            Ok(None) => {}
        }
        let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
        for child in children.unwrap_or_default().split_whitespace() {
            let Some(child) = child.parse().ok().and_then(Pid::from_raw) else {
                continue;
            };
            let _ = kill_process(child, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An ordinary user's mounts.
pub(super) fn unmount_below(place: &Path) {
    let mounts = super::tree::mounts().into_iter();
    for (point, _) in mounts.filter(|(point, _)| point.starts_with(place)) {
        let mut command = Command::new("fusermount3");
        let command = command.args(["-u", "-z"]).arg(point);
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// Removes a folder and what is in it, if it is there. Links are not followed.
pub(super) fn remove(path: &Path) {
    for _ in 0..20 {
        match fs::remove_dir_all(path).map_err(|error| (error.kind(), error)) {
            // Something that was killed may still make a file.
            Err((ErrorKind::DirectoryNotEmpty, _)) => std::thread::sleep(Duration::from_millis(50)),
            // Nothing was made where there is no directory.
            Ok(()) | Err((ErrorKind::NotFound | ErrorKind::NotADirectory, _)) => return,
            Err((_, error)) => {
                eprintln!("thrufs bench: {} stays: {error}", path.display());
                return;
            }
        }
    }
}

//! Ending what is left of a run, and removing it.

use crate::plan::Plan;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long processes that were killed may take: one that waits for a server which does not answer ends
/// when that has ended.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long files are removed without a word.
const SILENCE: Duration = Duration::from_secs(2);

/// Has this process be the parent of all that descend from it and lose their own.
pub(super) fn adopt_orphans() {
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
}

/// Ends every process of the run, takes its mounts away, and removes its folders.
pub(super) fn clean_up(plan: &Plan) {
    end_all_children();
    let place = plan.place();
    unmount_below(&place);
    tell_when_slow(|| {
        // What is beneath mounts is not to be removed through them; those of others come last, because they
        // may not answer.
        remove(&place);
        remove(&plan.unfinished_out());
        for point in plan.mounts_of_others() {
            remove(&point.join(&plan.scratch));
        }
    });
}

/// Files by the thousand, on a disk that is busy: says why the prompt does not come back.
fn tell_when_slow(remove: impl FnOnce()) {
    let (done, is_done) = mpsc::channel::<()>();
    let teller = std::thread::spawn(move || {
        if is_done.recv_timeout(SILENCE) == Err(RecvTimeoutError::Timeout) {
            // The terminal may be gone.
            let _ = writeln!(io::stderr(), "removing the files of the run");
        }
    });
    remove();
    drop(done);
    let _ = teller.join();
}

/// Ends children, and theirs, which become ours when they lose their parents.
fn end_all_children() {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match wait(WaitOptions::NOHANG) {
            Err(Errno::CHILD) => return,
            Ok(Some(_)) | Err(_) => continue,
            Ok(None) => {}
        }
        for child in children() {
            let _ = kill_process(child, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn children() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero();
    let path = format!("/proc/{own}/task/{own}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    let numbers = text.split_whitespace().filter_map(|word| word.parse().ok());
    numbers.filter_map(Pid::from_raw).collect()
}

/// An ordinary user's mounts without namespaces.
pub(super) fn unmount_below(place: &Path) {
    for point in super::tree::mount_points_below(place) {
        let _ = Command::new("fusermount3")
            .args(["-u", "-z"])
            .arg(point)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

/// Removes a folder and what is in it, if it is there. Links are not followed.
pub(super) fn remove(path: &Path) {
    for _ in 0..20 {
        match fs::remove_dir_all(path) {
            Ok(()) => return,
            // Nothing was made where there is no directory.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return;
            }
            // Something that was killed may still make a file.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => {
                eprintln!("thrufs bench: {} stays: {error}", path.display());
                return;
            }
        }
    }
}

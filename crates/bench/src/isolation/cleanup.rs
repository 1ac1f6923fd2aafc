//! The clean-up process: makes the scratch folder, starts the run, and stays until every process, mount and
//! folder of it is gone, however it ends.

use super::{is_root, refusal, remains, scratch, tree};
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::stop::wait_for;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::process::{Child, ExitCode, Stdio};

/// `clean-up PLAN`, with the parent pipe for standard input.
pub(crate) fn run(plan: &str) -> Outcome<ExitCode> {
    let plan = Plan::parse(plan)?;
    // Nothing that happens to the terminal, or to its processes, is our matter.
    let _ = rustix::process::setsid();
    remains::adopt_orphans();
    let outcome = keep(&plan);
    remains::clean_up(&plan);
    outcome
}

/// Makes the place, has the run take place there and waits for its end, or the front's.
fn keep(plan: &Plan) -> Outcome<ExitCode> {
    for directory in std::iter::once(&*plan.directory).chain(plan.mounts_of_others()) {
        scratch::sweep(directory);
    }
    refusal::check(plan)?;
    // Held until the end: by the locks other runs see that this one is alive.
    let mut locks = vec![scratch::make(&plan.directory, &plan.scratch)?];
    for point in plan.mounts_of_others() {
        if tree::same_tree(point, &plan.place(), scratch::LOCK).is_none() {
            locks.push(scratch::make(point, &plan.scratch)?);
        }
    }
    if is_root() {
        // For processes that are started from now on; the first is the first there.
        thrufs_sys::cred::unshare_process_namespace().map_err(super::namespaces::refused)?;
    }
    let run = crate::outcome::again("inside", &plan.text()?)
        .stdin(Stdio::inherit())
        .spawn()
        .map_err(|error| format!("cannot start again: {error}"))?;
    let code = ended(run).map_err(|error| format!("cannot wait: {error}"))?;
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Waits until the run has ended and gives its code; none when it was killed, or when the front has gone
/// before.
fn ended(mut run: Child) -> io::Result<Option<u8>> {
    let descriptor = pidfd_open(Pid::from_child(&run), PidfdFlags::empty())?;
    let parent_pipe = io::stdin();
    let has_ended = PollFd::new(&descriptor, PollFlags::IN);
    // Only its end, which cannot be masked.
    let is_abandoned = PollFd::new(&parent_pipe, PollFlags::empty());
    if let [_, true] = wait_for([has_ended, is_abandoned], None)? {
        return Ok(None);
    }
    let code = run.wait()?.code();
    Ok(code.and_then(|code| u8::try_from(code).ok()))
}

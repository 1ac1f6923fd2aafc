//! The clean-up process: makes the scratch folder, starts the namespaces process, and stays until every
//! process, mount and folder of the run is gone, however the run ends.

use super::{Privileges, refusal, remains, scratch, tree};
use crate::plan::Plan;
use crate::{Outcome, programs};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::AsFd;
use std::process::{Child, ExitCode, Stdio};

/// Exit code of the namespaces process: these privileges are not available, and others may be tried.
pub(super) const NO_PRIVILEGES: u8 = 75;

/// `clean-up PLAN`, with the parent pipe for standard input.
pub(crate) fn run(arguments: &[String]) -> Outcome<ExitCode> {
    let [plan] = arguments else {
        return Err("clean-up PLAN".to_owned());
    };
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
    for directory in [plan.directory.as_path()]
        .into_iter()
        .chain(plan.mounts_of_others())
    {
        scratch::sweep(directory);
    }
    refusal::check(plan)?;
    // Held until the end: by the locks other runs see that this one is alive.
    let _scratch = scratch::make(&plan.directory, &plan.scratch)?;
    refusal::quota(plan)?;
    let mut _others = Vec::new();
    for point in plan.mounts_of_others() {
        if tree::same_tree(point, &plan.place(), scratch::LOCK).is_none() {
            _others.push(scratch::make(point, &plan.scratch)?);
        }
    }
    let text = plan.text()?;
    let mut code = ExitCode::FAILURE;
    for privileges in Privileges::possible() {
        let namespaces = programs::again("namespaces")
            .arg(privileges.word())
            .arg(&text)
            .stdin(Stdio::inherit())
            .spawn()
            .map_err(|error| format!("cannot start again: {error}"))?;
        match ended(namespaces).map_err(|error| format!("cannot wait: {error}"))? {
            Some(NO_PRIVILEGES) => {}
            Some(said) => return Ok(ExitCode::from(said)),
            None => return Ok(code),
        }
        code = ExitCode::from(NO_PRIVILEGES);
    }
    Err("this machine permits no mounts here".to_owned())
}

/// Waits until the namespaces process has ended and gives its code; none when it was killed, or when the front has gone
/// before.
fn ended(mut namespaces: Child) -> io::Result<Option<u8>> {
    let descriptor = pidfd_open(Pid::from_child(&namespaces), PidfdFlags::empty())?;
    loop {
        let parent_pipe = io::stdin();
        let mut polled = [
            PollFd::from_borrowed_fd(descriptor.as_fd(), PollFlags::IN),
            // Only its end, which cannot be masked.
            PollFd::from_borrowed_fd(parent_pipe.as_fd(), PollFlags::empty()),
        ];
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !polled[1].revents().is_empty() {
            return Ok(None);
        }
        if !polled[0].revents().is_empty() {
            let code = namespaces.wait()?.code();
            return Ok(code.and_then(|code| u8::try_from(code).ok()));
        }
    }
}

//! The process that the user has started: keeps the terminal, hears Ctrl-C, and waits.

use super::remains;
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::stop::wait_for;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{self, PipeWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode, ExitStatus, Stdio};
use thrufs_sys::signal::SignalFd;

/// SIGHUP (the terminal is closed), SIGINT, SIGTERM: they ask for the end.
pub(super) const ENDING: [i32; 3] = [1, 2, 15];

/// Carries out a plan, and leaves nothing of it but its report.
pub(crate) fn run(plan: &Plan) -> Outcome<ExitCode> {
    let signals = SignalFd::block_and_open(&ENDING);
    let signals = signals.map_err(|error| format!("cannot wait for signals: {error}"))?;
    remains::adopt_orphans();
    let (parent_pipe, our_end) = io::pipe().map_err(|error| error.to_string())?;
    let cleanup = crate::outcome::again("clean-up", &plan.text()?)
        .stdin(Stdio::from(parent_pipe))
        .spawn()
        .map_err(|error| format!("cannot start again: {error}"))?;
    let mut waiting = Waiting {
        cleanup,
        parent_pipe: Some(our_end),
        asked: None,
    };
    let status = waiting.wait(&signals);
    let status = status.map_err(|error| format!("cannot wait: {error}"))?;
    if status.signal().is_some() {
        // Killed: what it would have done is ours to do.
        remains::clean_up(plan);
        eprintln!("thrufs bench: it was killed; everything is cleaned up");
    }
    Ok(match (waiting.asked, status.code()) {
        // As shells say what a signal has ended.
        (Some(signal), _) => ExitCode::from(128 + signal),
        (None, Some(code)) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        (None, None) => ExitCode::FAILURE,
    })
}

struct Waiting {
    cleanup: Child,
    parent_pipe: Option<PipeWriter>,
    /// The signal that has asked for the end.
    asked: Option<u8>,
}

impl Waiting {
    /// Until the clean-up process has ended.
    fn wait(&mut self, signals: &SignalFd) -> io::Result<ExitStatus> {
        let ended = pidfd_open(Pid::from_child(&self.cleanup), PidfdFlags::empty())?;
        loop {
            let polled = [ended.as_fd(), signals.as_fd()]
                .map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN));
            let [has_ended, signalled] = wait_for(polled, None)?;
            if has_ended {
                return self.cleanup.wait();
            }
            if signalled && let Ok(signal) = signals.read() {
                self.hear(signal.number);
            }
        }
    }

    /// The first time, the run comes to an end with what it has; the second time at once.
    fn hear(&mut self, signal: i32) {
        let is_first = self.asked.is_none();
        self.asked.get_or_insert(u8::try_from(signal).unwrap_or(2));
        let pipe = self.parent_pipe.as_mut().filter(|_| is_first);
        let what = if pipe.is_some_and(|pipe| pipe.write_all(b"!").is_ok()) {
            "stopping, with a report of what was measured so far; once more for none"
        } else {
            self.parent_pipe = None;
            "leaving once the files are removed"
        };
        // The terminal may be gone.
        let _ = writeln!(io::stderr(), "\n{what}");
    }
}

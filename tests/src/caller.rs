//! Acting as somebody else: as another user in a thread, or as another process.
//!
//! User and group ids belong to a thread in Linux (only the C library makes them process-wide), so
//! a body of code can run as another user in a thread of its own, without a process and without
//! unsafe code. Locks of `fcntl` and signals belong to processes: for them there is the program
//! `thrufs-test-helper`.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::panic::resume_unwind;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Gid, Pid, Signal, Uid};

use crate::programs;

/// A user, with the groups beside the primary one.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Real, effective, saved and file-system user id.
    pub uid: u32,
    /// Real, effective, saved and file-system group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: &'static [u32],
}

/// An ordinary user.
pub const ALICE: Caller = Caller {
    uid: 4001,
    gid: 4001,
    groups: &[],
};

/// Another ordinary user, who shares no group with [`ALICE`].
pub const BOB: Caller = Caller {
    uid: 4002,
    gid: 4002,
    groups: &[],
};

/// The group of which only [`MEMBER`] is a member, as a supplementary one.
pub const TEAM: u32 = 4100;

/// A user with several supplementary groups, [`TEAM`] among them.
pub const MEMBER: Caller = Caller {
    uid: 4003,
    gid: 4003,
    groups: &[4098, 4099, TEAM, 4101],
};

impl Caller {
    /// Runs `body` as this user, without any capability, and gives back what it returns. Needs root.
    ///
    /// # Panics
    ///
    /// With the panic of `body`, or if the ids cannot be changed.
    #[track_caller]
    pub fn run<T: Send>(self, body: impl FnOnce() -> T + Send) -> T {
        let ran = thread::scope(|scope| {
            scope
                .spawn(move || {
                    self.become_caller();
                    body()
                })
                .join()
        });
        ran.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn become_caller(self) {
        let groups: Vec<Gid> = self.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        rustix::thread::set_thread_groups(&groups).expect("only root can act as others");
        rustix::thread::set_thread_res_gid(gid, gid, gid).expect("only root can act as others");
        // Last: this drops the capabilities.
        rustix::thread::set_thread_res_uid(uid, uid, uid).expect("only root can act as others");
    }
}

/// How long another process may take for a line that is due.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A running helper program: another process. Killed when dropped.
pub struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// Starts the helper program with `args`; its own documentation lists the commands.
    #[track_caller]
    pub fn start<S: AsRef<OsStr>>(args: &[S]) -> Self {
        Self::start_program(&programs::test_helper(), args)
    }

    /// Starts another of this crate's programs.
    #[track_caller]
    pub fn start_program<S: AsRef<OsStr>>(program: &Path, args: &[S]) -> Self {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stdin = child.stdin.take();
        let (sender, lines) = mpsc::channel();
        // A thread, so that waiting for a line can be bounded.
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            stdin,
            lines,
        }
    }

    /// The next line it prints.
    ///
    /// # Panics
    ///
    /// If none comes within a minute.
    #[track_caller]
    pub fn line(&self) -> String {
        self.line_within(LINE_TIMEOUT)
            .expect("the other process should have printed a line")
    }

    /// The next line, if one comes within `timeout`.
    pub fn line_within(&self, timeout: Duration) -> Option<String> {
        self.lines.recv_timeout(timeout).ok()
    }

    /// What it has printed up to its end since the last line that was asked for.
    ///
    /// # Panics
    ///
    /// If it goes on printing, or does not end, for a minute.
    #[track_caller]
    pub fn last_lines(&self) -> Vec<String> {
        let deadline = Instant::now() + LINE_TIMEOUT;
        let mut lines = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => return lines,
                Err(RecvTimeoutError::Timeout) => panic!("the other process does not end"),
            }
        }
    }

    /// All lines that it has printed since the last one that was asked for.
    pub fn lines(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Whether it has ended, at the latest after `timeout`. Its last lines can be read then.
    pub fn is_ended_within(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            if self.child.try_wait().unwrap().is_some() {
                return true;
            }
            thread::sleep(POLL_INTERVAL);
        }
        false
    }

    /// What the kernel says of where it is, for the report of a process that is stuck.
    pub fn place(&self) -> String {
        let place = |file: &str| {
            let path = format!("/proc/{}/{file}", self.child.id());
            fs::read_to_string(path).unwrap_or_default()
        };
        format!("{}{}", place("stack"), place("syscall"))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Closes its standard input, on which the holding commands wait.
    pub fn end_input(&mut self) {
        self.stdin = None;
    }

    /// Closes its standard input, on which the holding commands wait, and waits for its end.
    #[track_caller]
    pub fn finish(mut self) {
        self.stdin = None;
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the other process ended with {status}");
    }

    /// Kills it and waits until it is gone.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the helper program to its end and gives back what it printed, without the last newline.
#[track_caller]
pub fn run_process<S: AsRef<OsStr>>(args: &[S]) -> String {
    let mut child = Command::new(programs::test_helper())
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "the other process ended with {status}");
    text.trim_end().to_owned()
}

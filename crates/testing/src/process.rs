//! A second process, for locks of fcntl(2) and signals, which belong to processes.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

const LINE_TIMEOUT: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A running program. Killed when dropped.
pub struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// Starts a program.
    #[track_caller]
    pub fn start<S: AsRef<OsStr>>(program: &Path, args: &[S]) -> Self {
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stdin = child.stdin.take();
        let (sender, lines) = mpsc::channel();
        // Read by a thread, so that waits for a line have a limit.
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

    /// The next line of output.
    ///
    /// # Panics
    ///
    /// Without one within a minute.
    #[track_caller]
    pub fn line(&self) -> String {
        self.line_within(LINE_TIMEOUT)
            .expect("the other process should have printed a line")
    }

    /// The next line, if one comes within `timeout`.
    pub fn line_within(&self, timeout: Duration) -> Option<String> {
        self.lines.recv_timeout(timeout).ok()
    }

    /// The rest of its output, up to its end.
    ///
    /// # Panics
    ///
    /// If it has not ended within a minute.
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

    /// All lines not read yet.
    pub fn lines(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Whether it has ended within `timeout`. Its last lines can be read then.
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

    /// Its kernel stack and system call (procfs), for the report of a process that hangs.
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

    /// Closes its standard input, for which commands that hold something wait.
    pub fn end_input(&mut self) {
        self.stdin = None;
    }

    /// Closes its standard input and waits for its end.
    #[track_caller]
    pub fn finish(mut self) {
        self.stdin = None;
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the other process ended with {status}");
    }

    /// The same, and returns its output not read yet.
    #[track_caller]
    pub fn output(mut self) -> String {
        self.stdin = None;
        let lines = self.last_lines().join("\n");
        self.finish();
        lines
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

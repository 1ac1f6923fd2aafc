//! A program under test in a process of its own, which ends on drop. Its output goes to a file. Every wait
//! is bounded.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// How long any start or end may take: far longer than a server gives to requests in progress, as the
/// machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Ended with SIGTERM when dropped, then with SIGKILL.
#[derive(Debug)]
pub(crate) struct Running {
    child: Mutex<Child>,
    /// Beside the child, whose lock a thread that hangs may hold. Valid until the child is reaped.
    pid: u32,
    log: PathBuf,
}

impl Running {
    /// Starts a program, appending to its log. `files_max` is its limit of open files, soft and hard.
    pub(crate) fn start(
        program: &Path,
        arguments: impl FnOnce(&mut Command),
        files_max: Option<u32>,
        log: PathBuf,
    ) -> Result<Self, String> {
        let text = |error: std::io::Error| format!("{}: {error}", log.display());
        let log_file = OpenOptions::new().create(true).append(true).open(&log);
        let log_file = log_file.map_err(text)?;
        let limit = files_max.map(|max| format!("ulimit -n {max} && "));
        let limit = limit.unwrap_or_default();
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("{limit}exec \"$@\""), "sh"])
            .arg(program)
            .stdin(Stdio::null())
            .stdout(log_file.try_clone().map_err(text)?)
            .stderr(log_file);
        arguments(&mut command);
        let child = command.spawn();
        let child = child.map_err(|error| format!("{}: {error}", program.display()))?;
        Ok(Self {
            pid: child.id(),
            child: Mutex::new(child),
            log,
        })
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Its log, and that of earlier processes in the same file.
    pub(crate) fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = pid_of(self.pid) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    pub(crate) fn ended_within(&self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Ok(Some(status)) = self.child().try_wait() {
                return Some(status);
            }
            if Instant::now() > deadline {
                return None;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            if let Some(status) = self.ended_within(Duration::ZERO) {
                return Err(format!("ended with {status} before {what} was there"));
            }
            if Instant::now() > deadline {
                return Err(format!("{what} was not there within {PATIENCE:?}"));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    pub(crate) fn stop(&self) -> Result<(), String> {
        if let Some(status) = self.ended_within(Duration::ZERO) {
            return Err(format!("had already ended with {status}"));
        }
        self.signal(Signal::TERM);
        let status = self.ended_within(PATIENCE);
        let status = status.ok_or_else(|| format!("did not end within {PATIENCE:?} of SIGTERM"))?;
        if !status.success() {
            return Err(format!("ended with {status} after SIGTERM"));
        }
        Ok(())
    }

    /// Waits for the end of a killed process.
    pub(crate) fn wait(&self) {
        let _ = self.child().wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- {} ---\n{}", self.log.display(), self.log_text());
        }
        if self.ended_within(Duration::ZERO).is_none() {
            self.signal(Signal::TERM);
        }
        if self.ended_within(PATIENCE).is_none() {
            self.signal(Signal::KILL);
            self.wait();
        }
    }
}

pub(crate) fn pid_of(process: u32) -> Option<Pid> {
    Pid::from_raw(process.try_into().ok()?)
}

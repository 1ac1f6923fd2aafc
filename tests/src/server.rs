//! A server on a ground that outlives it, for tests of its end: so that another can follow, and what
//! it left beneath can be looked at.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};

use crate::lower::Ground;
use crate::mounted::{answers_within, is_mounted};
use crate::{programs, transport};

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// How long a mount may take until it answers.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a server may take to end: far longer than it gives to requests in progress, as the machine may
/// be busy.
pub const END_TIMEOUT: Duration = Duration::from_secs(60);

/// What it logs when its mount stands. With a space, because it logs the end as `unmounted`.
const MOUNTED: &str = " mounted ";

/// A running `thrufs mount -f`. Ended when dropped, whatever has happened.
pub struct Server {
    child: Child,
    mnt: PathBuf,
    log: PathBuf,
}

impl Server {
    /// Mounts the ground. Requests come as `options` say, and by `/dev/fuse` if they say nothing;
    /// that they do is made sure of. `files_max` is the limit of open files, soft and hard.
    ///
    /// # Panics
    ///
    /// When no mount answers in time.
    #[track_caller]
    pub fn start(ground: &Ground, options: &str, files_max: Option<u32>) -> Self {
        let options = transport::named(options);
        let _switch = transport::hold_switch(&options).unwrap();
        let server = Self::start_unproved(ground, &options, files_max);
        if let Err(error) = transport::prove(&options, server.pid()) {
            panic!("`-o {options}`: {error}");
        }
        server
    }

    /// The same, but however its requests come, and with no regard to the kernel's switch.
    #[track_caller]
    pub fn start_unproved(ground: &Ground, options: &str, files_max: Option<u32>) -> Self {
        let options = format!("allow_other,{options}");
        let log = ground.base().join("server.log");
        let before = fs::read_to_string(&log).unwrap_or_default();
        let before = before.matches(MOUNTED).count();
        let log_file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        let limit = files_max
            .map(|max| format!("ulimit -n {max} && "))
            .unwrap_or_default();
        let child = Command::new("sh")
            .args(["-c", &format!("{limit}exec \"$@\""), "sh"])
            .arg(programs::thrufs().unwrap())
            .args(["mount", "-f", "-o", &options])
            .args([ground.source(), ground.mnt()])
            .stdin(Stdio::null())
            .stdout(log_file.try_clone().unwrap())
            .stderr(log_file)
            .spawn()
            .unwrap();
        let mut server = Self {
            child,
            mnt: ground.mnt().to_owned(),
            log,
        };
        let deadline = Instant::now() + START_TIMEOUT;
        // Before it says so, it takes SIGTERM for a failed start.
        while !is_mounted(&server.mnt) || server.log_text().matches(MOUNTED).count() <= before {
            let ended = server.child.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "no mount, ended: {ended:?}"
            );
            thread::sleep(POLL_INTERVAL);
        }
        if let Err(error) = answers_within(&server.mnt, START_TIMEOUT) {
            // Ends the connection, and with it the thread that asked.
            server.kill();
            panic!("{error}");
        }
        server
    }

    /// The process that was started, which supervises.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the process that was started.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal);
    }

    /// Kills all of it at once. The mount stays, dead.
    pub fn kill(&mut self) {
        for process in self.processes().into_iter().rev() {
            if let Some(pid) = pid_of(process) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        let _ = self.child.wait();
    }

    /// Waits for the end of the process.
    pub fn ended_within(&mut self, timeout: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            thread::sleep(POLL_INTERVAL);
        }
        None
    }

    /// Ends it with SIGTERM: in time, without an error, and without a mount left.
    #[track_caller]
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self
            .ended_within(END_TIMEOUT)
            .expect("it ends in time after SIGTERM");
        assert!(status.success(), "{status}");
        assert!(!is_mounted(&self.mnt), "the mount is gone");
    }

    /// The processes that serve: the one that was started and what it started.
    pub fn processes(&self) -> Vec<u32> {
        let worker = transport::worker_of(self.pid());
        std::iter::once(self.pid()).chain(worker).collect()
    }

    /// The process that answers requests.
    #[track_caller]
    pub fn worker(&self) -> u32 {
        transport::worker_of(self.pid()).expect("a worker of its own")
    }

    /// What it has written so far, and what others wrote before it on the same ground.
    pub fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- server log ---\n{}", self.log_text());
        }
        if let Ok(None) = self.child.try_wait() {
            if let Some(pid) = pid_of(self.pid()) {
                let _ = rustix::process::kill_process(pid, Signal::TERM);
            }
            if self.ended_within(END_TIMEOUT).is_none() {
                self.kill();
            }
        }
        if is_mounted(&self.mnt) {
            let _ = rustix::mount::unmount(&self.mnt, UnmountFlags::DETACH);
        }
    }
}

fn pid_of(process: u32) -> Option<Pid> {
    Pid::from_raw(process.try_into().ok()?)
}

/// Sends a signal to a process that is there.
#[track_caller]
pub fn kill_process(process: u32, signal: Signal) {
    rustix::process::kill_process(pid_of(process).unwrap(), signal).unwrap();
}

/// Whether nothing is mounted there any more, at the latest after `timeout`.
pub fn is_unmounted_within(mnt: &Path, timeout: Duration) -> bool {
    let deadline = Instant::now() + timeout;
    while Instant::now() < deadline {
        if !is_mounted(mnt) {
            return true;
        }
        thread::sleep(POLL_INTERVAL);
    }
    false
}

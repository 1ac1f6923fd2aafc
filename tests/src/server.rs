//! A server on a test directory that outlives it, for tests of its end: another can follow, and the files
//! beneath can be checked.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::mount::UnmountFlags;
use rustix::process::Signal;

use crate::lower::Ground;
use crate::mount_point::{answers_within, is_mounted};
use crate::running::{PATIENCE, Running, pid_of};
use crate::{programs, transport};

pub const START_TIMEOUT: Duration = PATIENCE;

pub const END_TIMEOUT: Duration = PATIENCE;

/// Logged once it is mounted. With a space, because the end is logged as `unmounted`.
const MOUNTED: &str = " mounted ";

/// A running `thrufs mount -f`, ended on drop.
pub struct Server {
    // First: it ends before its mount is taken away.
    process: Running,
    mount: Mount,
}

/// A mount point, detached on drop.
pub(crate) struct Mount(pub(crate) PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        if is_mounted(&self.0) {
            eprintln!("thrufs-tests: a mount was left behind");
            let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
        }
    }
}

impl Server {
    /// Mounts the ground for all users, over the transport that `options` name, else `/dev/fuse`, and
    /// checks that it is used. `files_max` is the limit of open files, soft and hard.
    #[track_caller]
    pub fn start(ground: &Ground, options: &str, files_max: Option<u32>) -> Self {
        Self::try_start(ground, options, files_max).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same; the error has the server's output.
    pub fn try_start(
        ground: &Ground,
        options: &str,
        files_max: Option<u32>,
    ) -> Result<Self, String> {
        let options = transport::named(options);
        let _switch = transport::hold_switch(&options)?;
        let server = Self::try_start_unproved(ground, &options, files_max)?;
        transport::prove(&options, server.pid())
            .map_err(|error| format!("`-o {options}`: {error}\n{}", server.log_text()))?;
        Ok(server)
    }

    /// The same over any transport, and with no regard to the kernel's switch.
    #[track_caller]
    pub fn start_unproved(ground: &Ground, options: &str, files_max: Option<u32>) -> Self {
        let started = Self::try_start_unproved(ground, options, files_max);
        started.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Another mount of the ground's source, over any transport.
    pub fn try_start_at(ground: &Ground, mnt: &Path, options: &str) -> Result<Self, String> {
        Self::try_start_logged((ground, mnt, "other.log"), options, None)
    }

    fn try_start_unproved(
        ground: &Ground,
        options: &str,
        files_max: Option<u32>,
    ) -> Result<Self, String> {
        Self::try_start_logged((ground, ground.mnt(), "server.log"), options, files_max)
    }

    fn try_start_logged(
        (ground, mnt, log): (&Ground, &Path, &str),
        options: &str,
        files_max: Option<u32>,
    ) -> Result<Self, String> {
        let options = format!("allow_other,{options}");
        let log = ground.base().join(log);
        let stand = |text: &str| text.matches(MOUNTED).count();
        let before = stand(&std::fs::read_to_string(&log).unwrap_or_default());
        let arguments = |command: &mut std::process::Command| {
            command
                .args(["mount", "-f", "-o", &options])
                .args([ground.source(), mnt]);
        };
        let mut server = Self {
            process: Running::start(&programs::thrufs()?, arguments, files_max, log)?,
            mount: Mount(mnt.to_owned()),
        };
        // Before it logs that, it takes SIGTERM for a failed start.
        let stands = || is_mounted(mnt) && stand(&server.log_text()) > before;
        let answers = server.process.wait_until("the mount", stands);
        let answers = answers.and_then(|()| answers_within(mnt, START_TIMEOUT));
        if let Err(error) = answers {
            // Ends the connection, and with it the thread that asked.
            server.kill();
            let log = server.log_text();
            return Err(format!("`thrufs mount -f -o {options}`: {error}\n{log}"));
        }
        Ok(server)
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal);
    }

    /// Kills all its processes. The mount stays, dead.
    pub fn kill(&mut self) {
        for process in self.processes().into_iter().rev() {
            if let Some(pid) = pid_of(process) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        self.process.wait();
    }

    pub fn ended_within(&mut self, timeout: Duration) -> Option<ExitStatus> {
        self.process.ended_within(timeout)
    }

    /// Ends it with SIGTERM: in time, without an error, and without a mount left.
    #[track_caller]
    pub fn stop(self) {
        self.end().unwrap_or_else(|error| panic!("{error}"));
    }

    /// The same; the error is text.
    pub fn end(&self) -> Result<(), String> {
        let stopped = self.process.stop();
        stopped.map_err(|error| format!("the server {error}"))?;
        match is_mounted(&self.mount.0) {
            true => Err("the server left its mount behind".to_owned()),
            false => Ok(()),
        }
    }

    /// The supervisor and its children.
    pub fn processes(&self) -> Vec<u32> {
        let worker = transport::worker_of(self.pid());
        std::iter::once(self.pid()).chain(worker).collect()
    }

    #[track_caller]
    pub fn worker(&self) -> u32 {
        transport::worker_of(self.pid()).expect("a worker of its own")
    }

    /// Its log, with that of earlier servers on the same ground.
    pub fn log_text(&self) -> String {
        self.process.log_text()
    }
}

#[track_caller]
pub fn kill_process(process: u32, signal: Signal) {
    rustix::process::kill_process(pid_of(process).unwrap(), signal).unwrap();
}

//! A share that is mounted on this machine through the queues of a virtio-fs device: a server of its own
//! process, `thrufs share`, and a relay, `thrufs-client mount`, for as long as the value lives.
//!
//! Whatever happens to the test, dropping the value ends both and detaches what is still mounted. Every
//! wait is bounded.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};

use crate::lower::{Ground, Lower};
use crate::mounted::{answers_within, is_mounted};
use crate::programs;
use thrufs_testing::Tree;

/// How long anything may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// What a relay says when its mount answers.
const MOUNTED: &str = "mounted ";

/// The queues of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// Request queues, each with a thread on either side.
    pub count: u16,
    /// Descriptors of each.
    pub size: u16,
    /// Whether requests may have tables of descriptors.
    pub indirect: bool,
}

impl Queues {
    /// As a guest with one CPU has them.
    pub const USUAL: Self = Self {
        count: 1,
        size: 1024,
        indirect: true,
    };

    /// A short name for reports: only what is unusual.
    pub fn name(self) -> String {
        let mut name = String::new();
        if self.count != Self::USUAL.count {
            name += &format!(" {} queues", self.count);
        }
        if self.size != Self::USUAL.size {
            name += &format!(" of {}", self.size);
        }
        if !self.indirect {
            name += " without tables";
        }
        name
    }
}

/// A process that is ended with the value.
#[derive(Debug)]
struct Ended(Mutex<Child>);

impl Ended {
    fn lock(&self) -> std::sync::MutexGuard<'_, Child> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pid(&self) -> u32 {
        self.lock().id()
    }

    fn within(&self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Ok(Some(status)) = self.lock().try_wait() {
                return Some(status);
            }
            if Instant::now() > deadline {
                return None;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn stop(&self) -> Option<ExitStatus> {
        signal(self.pid(), Signal::TERM);
        self.within(PATIENCE)
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        if self.stop().is_none() {
            let _ = self.lock().kill();
            let _ = self.lock().wait();
        }
    }
}

/// A running `thrufs share`, to which any number of relays may connect.
pub struct Share {
    server: Ended,
    socket: PathBuf,
    log: PathBuf,
}

impl Share {
    /// Shares `source` with the options given, its socket and its log in `place`.
    ///
    /// # Errors
    ///
    /// As text.
    pub fn start(source: &Path, place: &Path, options: &str) -> Result<Self, String> {
        Self::start_limited(source, place, options, None)
    }

    /// The same, with a limit of open files, soft and hard.
    ///
    /// # Errors
    ///
    /// As text.
    pub fn start_limited(
        source: &Path,
        place: &Path,
        options: &str,
        files_max: Option<u32>,
    ) -> Result<Self, String> {
        let (socket, log) = (place.join("share.socket"), place.join("share.log"));
        let mut list = "control=none".to_owned();
        if !options.is_empty() {
            list = format!("{list},{options}");
        }
        let limit = files_max
            .map(|max| format!("ulimit -n {max} && "))
            .unwrap_or_default();
        let server = spawn(
            Command::new("sh")
                .args(["-c", &format!("{limit}exec \"$@\""), "sh"])
                .arg(programs::thrufs()?)
                .args(["share", "-o", &list, "--socket"])
                .args([&socket, source]),
            &log,
        )?;
        let share = Self {
            server,
            socket,
            log,
        };
        share.wait_until("the socket", || share.socket.exists())?;
        Ok(share)
    }

    fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
        wait_until(&self.server, what, is_so)
            .map_err(|error| format!("`thrufs share`: {error}\n{}", self.log_text()))
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The process that was started.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Its workers: one for each front end, and perhaps one that waits.
    pub fn workers(&self) -> Vec<u32> {
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        let numbers = children.split_whitespace();
        numbers.filter_map(|number| number.parse().ok()).collect()
    }

    /// What it has written so far.
    pub fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// A running `thrufs-client mount`.
pub struct Relay {
    relay: Ended,
    mnt: PathBuf,
    log: PathBuf,
}

impl Relay {
    /// Mounts what a server at `socket` shares on `mnt`. Its log is beside the mount point.
    ///
    /// # Errors
    ///
    /// As text.
    pub fn start(socket: &Path, mnt: &Path, queues: Queues) -> Result<Self, String> {
        let log = mnt.with_extension("log");
        let mut command = Command::new(programs::thrufs_client()?);
        command
            .args(["--queues", &queues.count.to_string()])
            .args(["--queue-size", &queues.size.to_string()]);
        if !queues.indirect {
            command.arg("--no-indirect");
        }
        command.arg("--socket").arg(socket).arg("mount").arg(mnt);
        let relay = Self {
            relay: spawn(&mut command, &log)?,
            mnt: mnt.to_owned(),
            log,
        };
        wait_until(&relay.relay, "the mount", || {
            is_mounted(mnt) && relay.log_text().contains(MOUNTED)
        })
        .and_then(|()| answers_within(mnt, PATIENCE))
        .map_err(|error| format!("`thrufs-client mount`: {error}\n{}", relay.log_text()))?;
        Ok(relay)
    }

    /// The mount point.
    pub fn mnt(&self) -> &Path {
        &self.mnt
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.relay.pid()
    }

    /// What it has written so far.
    pub fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// How it has ended, if it does in time.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.relay.within(PATIENCE)
    }

    /// Ends it with SIGTERM and sees that it left nothing mounted.
    ///
    /// # Errors
    ///
    /// As text.
    pub fn stop(&self) -> Result<(), String> {
        let status = self.relay.stop().ok_or("the relay does not end")?;
        if is_mounted(&self.mnt) {
            return Err(format!("the relay ended ({status}) and left its mount"));
        }
        if !status.success() {
            return Err(format!("the relay ended with {status} after SIGTERM"));
        }
        Ok(())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- relay log ---\n{}", self.log_text());
        }
        signal(self.pid(), Signal::TERM);
        if self.relay.within(PATIENCE).is_none() {
            let _ = self.relay.lock().kill();
        }
        if is_mounted(&self.mnt) {
            let _ = rustix::mount::unmount(&self.mnt, UnmountFlags::DETACH);
        }
    }
}

/// A share of a fresh directory with one relay: a tree under test.
pub struct Relayed {
    // In the order in which they must go.
    relay: Relay,
    share: Share,
    ground: Ground,
}

impl Relayed {
    /// Shares a fresh directory on `lower` with `options`, and mounts it through `queues`.
    ///
    /// # Errors
    ///
    /// As text.
    pub fn start_on(lower: Lower, options: &str, queues: Queues) -> Result<Self, String> {
        let ground = Ground::prepare(lower)?;
        let options = if queues.count > 1 {
            format!("queues={},{options}", queues.count)
        } else {
            options.to_owned()
        };
        let options = options.trim_end_matches(',');
        let share = Share::start(ground.source(), ground.base(), options)?;
        let relay = Relay::start(share.socket(), ground.mnt(), queues)
            .map_err(|error| format!("{error}\n{}", share.log_text()))?;
        Ok(Self {
            relay,
            share,
            ground,
        })
    }

    /// The server.
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// The mount.
    pub fn relay(&self) -> &Relay {
        &self.relay
    }

    /// The directories.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }
}

impl Tree for Relayed {
    fn root(&self) -> &Path {
        self.ground.mnt()
    }

    fn beneath(&self) -> &Path {
        self.ground.source()
    }

    /// Kills the relay: the kernel then ends the connection and every waiting call with it.
    fn abort(&self) {
        eprintln!("thrufs-tests: killing the relay");
        signal(self.relay.pid(), Signal::KILL);
    }

    fn print_log(&self) {
        let (share, relay) = (self.share.log_text(), self.relay.log_text());
        eprintln!("--- share log ---\n{share}--- relay log ---\n{relay}--- end ---");
    }
}

fn spawn(command: &mut Command, log: &Path) -> Result<Ended, String> {
    let text = |error: std::io::Error| format!("{}: {error}", log.display());
    let log_file = File::create(log).map_err(text)?;
    let child = command
        .stdin(Stdio::null())
        .stdout(log_file.try_clone().map_err(text)?)
        .stderr(log_file)
        .spawn()
        .map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    Ok(Ended(Mutex::new(child)))
}

fn wait_until(process: &Ended, what: &str, is_so: impl Fn() -> bool) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        if let Some(status) = process.within(Duration::ZERO) {
            return Err(format!("ended with {status} before {what} was there"));
        }
        if Instant::now() > deadline {
            return Err(format!("{what} was not there within {PATIENCE:?}"));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

//! A tree mounted by the `thrufs` command, for as long as the value lives.
//!
//! The server runs in the foreground as a child of the test, its standard error in a file. Whatever
//! happens to the test, dropping the value ends the server (SIGTERM, then SIGKILL) and detaches what
//! is still mounted. Every wait is bounded.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::CWD;
use rustix::mount::{FsPickFlags, UnmountFlags};
use rustix::process::{Pid, Signal};

use crate::lower::{Ground, Lower};
use crate::programs;
use crate::transport;
use thrufs_testing::Tree;

/// `f_type` of a FUSE file system, `FUSE_SUPER_MAGIC` in `linux/magic.h`.
const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;

/// How long a mount may take until it answers.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a server may take to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// What a server logs when its mount stands, unless it was told to log less.
const MOUNTED: &str = " mounted ";

/// A running `thrufs mount -f`.
pub struct Mounted {
    server: Mutex<Child>,
    server_pid: u32,
    log: PathBuf,
    stopped: bool,
    // After everything above: the lower file system goes last.
    ground: Ground,
}

/// Why nothing can be mounted here, if so.
pub fn cannot_mount() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root: mounting, foreign owners and devices need it".to_owned());
    }
    if !Path::new("/dev/fuse").exists() {
        return Some("no /dev/fuse".to_owned());
    }
    None
}

/// For the first line of a `#[test]`: true if it must skip, which it then says.
pub fn must_skip(test: &str) -> bool {
    let reason = cannot_mount();
    if let Some(reason) = &reason {
        thrufs_test_report::skipped_in(test, reason);
    }
    reason.is_some()
}

impl Mounted {
    /// Mounts a fresh directory with `options` (as after `-o`, without the `allow_other` that is
    /// always added, because cases act as several users). Requests come by `/dev/fuse` unless they
    /// say `transport=uring`; that they come as they shall is made sure of.
    ///
    /// # Panics
    ///
    /// When the server is missing or does not come up, with its standard error.
    #[track_caller]
    pub fn start(options: &str) -> Self {
        match Self::start_on(Lower::Default, options) {
            Ok(mounted) => mounted,
            Err(error) => panic!("{error}"),
        }
    }

    /// Mounts a fresh directory on `lower` with `options`.
    ///
    /// # Errors
    ///
    /// As text: the missing server, its standard error if it ended, a mount that does not answer.
    pub fn start_on(lower: Lower, options: &str) -> Result<Self, String> {
        let program = programs::thrufs()?;
        let ground = Ground::prepare(lower)?;
        let log = ground.base().join("server.log");
        let log_file = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let options = transport::named(&with_all_users(options));
        let _switch = transport::hold_switch(&options)?;
        let child = Command::new(&program)
            .args(["mount", "-f", "-o", &options])
            .args([ground.source(), ground.mnt()])
            .stdin(Stdio::null())
            .stdout(log_file.try_clone().map_err(|error| error.to_string())?)
            .stderr(log_file)
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        let mounted = Self {
            server_pid: child.id(),
            server: Mutex::new(child),
            log,
            stopped: false,
            ground,
        };
        mounted
            .wait_until_it_answers()
            .and_then(|()| transport::prove(&options, mounted.server_pid))
            .map_err(|error| {
                let log = mounted.log_text();
                format!("`thrufs mount -f -o {options}`: {error}\n{log}")
            })?;
        Ok(mounted)
    }

    /// The directories.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// The directory that is served.
    pub fn source(&self) -> &Path {
        self.ground.source()
    }

    /// The mount point.
    pub fn mnt(&self) -> &Path {
        self.ground.mnt()
    }

    /// A directory on the lower file system that the mount must never reach.
    pub fn outside(&self) -> &Path {
        self.ground.outside()
    }

    /// The server's process id.
    pub fn server_pid(&self) -> u32 {
        self.server_pid
    }

    /// The process id of its worker, which answers requests.
    ///
    /// # Panics
    ///
    /// If it has none.
    #[track_caller]
    pub fn worker_pid(&self) -> u32 {
        transport::worker_of(self.server_pid).expect("a worker")
    }

    /// What the server has written so far.
    pub fn log_text(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        format!("--- server log ---\n{text}--- end of server log ---")
    }

    /// Ends the server with SIGTERM and sees that it left nothing mounted.
    ///
    /// # Errors
    ///
    /// As text: it had to be killed, it failed, or its mount was left behind. The mount is gone
    /// afterwards in every case.
    pub fn stop(&mut self) -> Result<(), String> {
        if std::mem::replace(&mut self.stopped, true) {
            return Ok(());
        }
        let ended = self.end_server();
        let left_behind = is_mounted(self.ground.mnt());
        if left_behind {
            // A mount whose server is dead can only be detached.
            let _ = rustix::mount::unmount(self.ground.mnt(), UnmountFlags::DETACH);
        }
        let status = ended?;
        if left_behind {
            return Err(format!(
                "the server ended ({status}) and left its mount behind"
            ));
        }
        if !status.success() {
            return Err(format!("the server ended with {status} after SIGTERM"));
        }
        Ok(())
    }

    fn end_server(&self) -> Result<ExitStatus, String> {
        let mut server = self
            .server
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Ok(Some(status)) = server.try_wait() {
            return Err(format!("the server had already ended with {status}"));
        }
        signal(self.server_pid, Signal::TERM);
        let deadline = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = server.try_wait() {
                return Ok(status);
            }
            thread::sleep(POLL_INTERVAL);
        }
        let _ = server.kill();
        let _ = server.wait();
        Err(format!(
            "the server did not end within {STOP_TIMEOUT:?} of SIGTERM and was killed"
        ))
    }

    fn wait_until_it_answers(&self) -> Result<(), String> {
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline {
            let ended = self
                .server
                .lock()
                .ok()
                .and_then(|mut server| server.try_wait().ok()?);
            if let Some(status) = ended {
                return Err(format!("ended with {status} before its mount answered"));
            }
            // Before it says so, it takes SIGTERM for a failed start.
            if is_mounted(self.mnt()) && self.log_text().contains(MOUNTED) {
                return self.wait_for_statfs(deadline);
            }
            thread::sleep(POLL_INTERVAL);
        }
        Err(format!("nothing was mounted within {START_TIMEOUT:?}"))
    }

    fn wait_for_statfs(&self, deadline: Instant) -> Result<(), String> {
        let timeout = deadline.saturating_duration_since(Instant::now());
        let answered = answers_within(self.mnt(), timeout);
        if answered.is_err() {
            self.abort();
        }
        answered
    }
}

/// Whether a FUSE file system at `mnt` answers in time. A call into a mount that never answers cannot
/// be given up, so another thread makes it.
///
/// # Errors
///
/// As text.
pub fn answers_within(mnt: &Path, timeout: Duration) -> Result<(), String> {
    let (sender, receiver) = mpsc::channel();
    let path = mnt.to_owned();
    thread::spawn(move || sender.send(rustix::fs::statfs(&path).map(|statfs| statfs.f_type)));
    match receiver.recv_timeout(timeout) {
        Ok(Ok(FUSE_SUPER_MAGIC)) => Ok(()),
        Ok(Ok(other)) => Err(format!("statfs shows type {other:#x}, not FUSE")),
        Ok(Err(error)) => Err(format!("statfs of the mount: {error}")),
        Err(_) => Err(format!("mounted, but did not answer within {timeout:?}")),
    }
}

impl Tree for Mounted {
    fn root(&self) -> &Path {
        self.mnt()
    }

    fn beneath(&self) -> &Path {
        self.source()
    }

    /// Kills the server: the kernel then ends the connection and every waiting call with it.
    fn abort(&self) {
        eprintln!("thrufs-tests: killing the server (pid {})", self.server_pid);
        // Not through the child's lock: whoever hangs may hold it. The child is not yet waited
        // for, so its process id is still its own.
        signal(self.server_pid, Signal::KILL);
    }

    fn print_log(&self) {
        eprintln!("{}", self.log_text());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let stopped = self.stop();
        if let Err(error) = &stopped {
            eprintln!("thrufs-tests: {error}");
        }
        if stopped.is_err() || thread::panicking() {
            self.print_log();
        }
    }
}

/// Cases act as several users, which FUSE allows only with `allow_other`.
fn with_all_users(options: &str) -> String {
    let mut all: Vec<&str> = options
        .split(',')
        .filter(|option| !option.is_empty())
        .collect();
    if !all.contains(&"allow_other") {
        all.push("allow_other");
    }
    all.join(",")
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Whether something is mounted on `dir`, from the mount table: asking the mount itself could hang.
pub fn is_mounted(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // Temporary directories have no characters that the table escapes.
    table.lines().any(|line| {
        line.split(' ')
            .nth(4)
            .is_some_and(|path| Path::new(path) == dir)
    })
}

/// Has the kernel drop the names of one mount that nobody uses, and with their last name the inodes, of
/// which FUSE then sends FORGET. Other mounts keep theirs, unlike after a write to
/// `/proc/sys/vm/drop_caches`, so that counts of requests in other tests stay exact.
///
/// Any reconfiguration of a superblock does that (`reconfigure_super` in the kernel's `fs/super.c`). This
/// one changes nothing.
///
/// # Errors
///
/// Not root, or nothing is mounted there.
pub fn shrink_dcache(mnt: &Path) -> rustix::io::Result<()> {
    let superblock = rustix::mount::fspick(CWD, mnt, FsPickFlags::FSPICK_CLOEXEC)?;
    rustix::mount::fsconfig_reconfigure(superblock)
}

//! A tree mounted by the `thrufs` command. Drop ends the server and detaches what is still mounted.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::CWD;
use rustix::mount::FsPickFlags;
use rustix::process::Signal;
use thrufs_testing::Tree;

use crate::lower::{Ground, Lower};
use crate::server::Server;

/// `f_type` of a FUSE file system, `FUSE_SUPER_MAGIC` in `linux/magic.h`.
const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;

/// A running `thrufs mount -f` on a fresh directory.
pub struct Mounted {
    // First: the lower file system goes last.
    server: Server,
    stopped: bool,
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

/// For the first line of a `#[test]`: true if it must skip, which is reported.
pub fn must_skip() -> bool {
    let reason = cannot_mount();
    if let Some(reason) = &reason {
        thrufs_test_report::skipped(reason);
    }
    reason.is_some()
}

impl Mounted {
    /// Mounts a fresh directory with `options`, as after `-o`. Panics with the server's standard error.
    #[track_caller]
    pub fn start(options: &str) -> Self {
        Self::start_on(Lower::Default, options).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn start_on(lower: Lower, options: &str) -> Result<Self, String> {
        let ground = Ground::prepare(lower)?;
        Ok(Self {
            server: Server::try_start(&ground, options, None)?,
            stopped: false,
            ground,
        })
    }

    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    pub fn source(&self) -> &Path {
        self.ground.source()
    }

    pub fn mnt(&self) -> &Path {
        self.ground.mnt()
    }

    /// A directory on the lower file system that the mount must never reach.
    pub fn outside(&self) -> &Path {
        self.ground.outside()
    }

    pub fn server_pid(&self) -> u32 {
        self.server.pid()
    }

    /// The process id of its worker, which answers requests.
    #[track_caller]
    pub fn worker_pid(&self) -> u32 {
        self.server.worker()
    }

    pub fn log_text(&self) -> String {
        self.server.log_text()
    }

    /// Ends the server with SIGTERM and checks that nothing is left mounted.
    pub fn stop(&mut self) -> Result<(), String> {
        match std::mem::replace(&mut self.stopped, true) {
            true => Ok(()),
            false => self.server.end(),
        }
    }
}

/// Whether a FUSE file system at `mnt` answers in time. Another thread asks: a call into a mount that hangs
/// cannot be cancelled.
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
        eprintln!(
            "thrufs-tests: killing the server (pid {})",
            self.server_pid()
        );
        self.server.signal(Signal::KILL);
    }

    fn print_log(&self) {
        eprintln!("--- server log ---\n{}--- end ---", self.log_text());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("thrufs-tests: {error}");
            self.print_log();
        }
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

/// Drops the unused dentries and inodes of one mount, for which FUSE then sends FORGET. Unlike a write to
/// `/proc/sys/vm/drop_caches`, it leaves other mounts alone, so that counts of requests in other tests stay
/// exact.
///
/// Any reconfiguration of a superblock does that (`reconfigure_super` in the kernel's `fs/super.c`). This
/// one changes nothing. Needs root.
pub fn shrink_dcache(mnt: &Path) -> rustix::io::Result<()> {
    let superblock = rustix::mount::fspick(CWD, mnt, FsPickFlags::FSPICK_CLOEXEC)?;
    rustix::mount::fsconfig_reconfigure(superblock)
}

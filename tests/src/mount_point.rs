//! What is mounted on a directory, whoever serves it.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::CWD;
use rustix::mount::FsPickFlags;

/// `f_type` of a FUSE file system, `FUSE_SUPER_MAGIC` in `linux/magic.h`.
const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;

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

/// Whether nothing is mounted there after at most `timeout`.
pub fn is_unmounted_within(mnt: &Path, timeout: Duration) -> bool {
    let deadline = Instant::now() + timeout;
    while Instant::now() < deadline {
        if !is_mounted(mnt) {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
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

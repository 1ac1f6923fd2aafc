//! The standard files, which the command inherits, and the terminal among them.

use super::error::RunError;
use crate::error::system;
use rustix::fs::{FileType, Mode, OFlags, Stat, fchown, fstat, fstatfs};
use rustix::process::{Gid, Pid, Uid, getpgrp, test_kill_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// `linux/magic.h`
const PIPEFS_MAGIC: i64 = 0x5049_5045;

fn all() -> [(&'static str, rustix::io::Result<Stat>); 3] {
    [
        ("input", fstat(std::io::stdin())),
        ("output", fstat(std::io::stdout())),
        ("error", fstat(std::io::stderr())),
    ]
}

/// A directory as standard input would lead beneath the tree, by openat(2).
pub(super) fn refuse_directories() -> Result<(), RunError> {
    for (name, stat) in all() {
        let is_directory =
            |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if stat.as_ref().is_ok_and(is_directory) {
            return Err(RunError::DirectoryAsStandardFile(name));
        }
    }
    Ok(())
}

/// Gives pipes of root to the user that root runs the command as: opening `/dev/stdout` is opening the pipe
/// again, which its owner can. Not a terminal: its new owner could change its mode, for others to keep it open.
pub(super) fn give_pipes(uid: u32, gid: u32) -> Result<(), RunError> {
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    for file in [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()] {
        let is_pipe = fstatfs(file).is_ok_and(|it| it.f_type == PIPEFS_MAGIC);
        if is_pipe && fstat(file).is_ok_and(|stat| stat.st_uid == 0) {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            fchown(file, Some(uid), Some(gid))
                .map_err(system("give a pipe to the command's user"))?;
        }
    }
    Ok(())
}

/// The first of the standard files that is a terminal.
pub(super) fn terminal() -> Option<PathBuf> {
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let mut files = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()].into_iter();
    let name = files.find_map(|file| rustix::termios::ttyname(file, Vec::new()).ok())?;
    Some(OsString::from_vec(name.into_bytes()).into())
}

/// The terminal's foreground process group.
pub(super) fn foreground() -> Option<Pid> {
    tcgetpgrp(controlling_terminal()?).ok()
}

/// Makes `group` the foreground group, if this process's is. SIGTTOU is blocked.
pub(super) fn lend_terminal(group: Pid) {
    if let Some(terminal) = controlling_terminal()
        && tcgetpgrp(&terminal) == Ok(getpgrp())
    {
        let _ = tcsetpgrp(&terminal, group);
    }
}

/// Makes this process's group the foreground group, if that has ended. A shell in the sandbox takes the terminal
/// for its own group, and cannot give it back: it does not see this one.
pub(super) fn take_terminal_back() {
    let has_ended = |group| test_kill_process_group(group) == Err(rustix::io::Errno::SRCH);
    if let Some(terminal) = controlling_terminal()
        && tcgetpgrp(&terminal).is_ok_and(has_ended)
    {
        let _ = tcsetpgrp(&terminal, getpgrp());
    }
}

fn controlling_terminal() -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()
}

//! What is looked at before a file goes straight through, because nobody does so later.
//!
//! The kernel opens the lower file for itself, after our answer. It does not look at the lower file's
//! flags then. And what it does run into (a program that is being executed, a mount that has become
//! read-only, a lease) it cannot tell the caller: whatever it is, the caller sees EIO. So an open that
//! could run into something is looked at here first, and tried where looking does not tell; the error
//! is the caller's.
//!
//! What is forbidden stays forbidden in any case; what can be wrong is the error's number. Between our
//! look and the kernel's the file beneath can change: a program that is started beneath within these
//! microseconds, a mount that became read-only within the last [`MOUNT_FLAGS_MS`], a program that
//! lost its execute bits while it runs make the caller's open fail with EIO. That is a named limit.

use crate::host::Host;
use crate::inode::Inode;
use rustix::fs::{StatVfsMountFlags, Statx, StatxAttributes};
use std::os::fd::AsFd;
use std::sync::Arc;
use thrufs::{Context, Errno, Result};

/// For how long the flags of a mount beneath are believed, in milliseconds: long enough that programs
/// that open one file after another do not pay for it.
const MOUNT_FLAGS_MS: u64 = 10;

/// What an open would do to the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intent {
    reads: bool,
    writes: bool,
    appends: bool,
    truncates: bool,
}

impl Intent {
    pub(crate) fn of(flags: i32) -> Intent {
        let access = flags & libc::O_ACCMODE;
        Intent {
            reads: access != libc::O_WRONLY,
            writes: access != libc::O_RDONLY,
            appends: flags & libc::O_APPEND != 0,
            truncates: flags & libc::O_TRUNC != 0,
        }
    }

    pub(crate) fn changes(self) -> bool {
        self.writes || self.truncates
    }

    /// What the lower file's flags forbid. The kernel above does not know them, and does not look
    /// when it opens the lower file for itself.
    pub(crate) fn check(self, stat: &Statx) -> Result<()> {
        let only_appends = self.appends && !self.truncates;
        let attributes = stat.stx_attributes;
        let forbidden = attributes.contains(StatxAttributes::IMMUTABLE)
            || (attributes.contains(StatxAttributes::APPEND) && !only_appends);
        if self.changes() && forbidden {
            Err(Errno::EPERM)
        } else {
            Ok(())
        }
    }

    /// Whether somebody could write elsewhere than at the end of an append-only file, if it went
    /// straight through: by a shared map. A write cannot, since the kernel opens the lower file with
    /// `O_APPEND`, which stays with it.
    pub(crate) fn needs_watching(self, stat: &Statx) -> bool {
        self.reads && self.writes && stat.stx_attributes.contains(StatxAttributes::APPEND)
    }
}

/// The flags with which the lower file has to be opened to know whether it can be: `None` when it
/// would only repeat what is known. A file that nobody may execute is not executed, and what a mount
/// forbids is asked of the mount.
fn trial(flags: i32, is_executable: bool) -> Option<i32> {
    const TELLING: i32 = libc::O_ACCMODE | libc::O_APPEND | libc::O_DIRECT;
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    let is_special = flags & (libc::O_DIRECT | libc::O_NONBLOCK) != 0;
    (is_special || (writes && is_executable)).then_some(flags & TELLING)
}

impl Host {
    /// Makes sure that the kernel will be able to open the lower file with the client's `flags`. What
    /// the file is like was looked at just now.
    ///
    /// # Errors
    ///
    /// What the kernel would make EIO of: `EROFS` for a mount beneath that is read-only, `ETXTBSY` for
    /// a program that runs, `EINVAL` where there is no direct I/O, `EAGAIN` for a lease that a caller
    /// does not want to wait for; whatever the lower file system says.
    pub(crate) fn try_as_the_kernel(
        &self,
        context: &Context<'_>,
        inode: &Arc<Inode>,
        flags: i32,
    ) -> Result<()> {
        if Intent::of(flags).changes() && self.mount_is_read_only(inode)? {
            return Err(Errno::EROFS);
        }
        let Some(trial) = trial(flags, inode.is_executable()) else {
            return Ok(());
        };
        match self.open_inode(inode, trial | libc::O_NONBLOCK) {
            Err(Errno::EAGAIN) if flags & libc::O_NONBLOCK == 0 => {
                // Until the holder of the lease lets go.
                context.require_blocking()?;
                context.interruptible(|_| self.open_inode(inode, trial).map(drop))
            }
            tried => tried.map(drop),
        }
    }

    /// Whether the mount beneath is read-only, as it was at most [`MOUNT_FLAGS_MS`] ago.
    fn mount_is_read_only(&self, inode: &Arc<Inode>) -> Result<bool> {
        let now_ms = self.mounts.now_ms();
        if let Some(known) = inode.mount().known_read_only(now_ms, MOUNT_FLAGS_MS) {
            return Ok(known);
        }
        let descriptor = self.descriptor(inode)?;
        let flags = rustix::fs::fstatvfs(descriptor.as_fd())?.f_flag;
        let is_read_only = flags.contains(StatVfsMountFlags::RDONLY);
        inode.mount().record_read_only(now_ms, is_read_only);
        Ok(is_read_only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_could_be_refused_is_tried() {
        let reader = libc::O_RDONLY | libc::O_CLOEXEC;
        for is_executable in [false, true] {
            assert_eq!(trial(reader, is_executable), None);
            assert_eq!(trial(reader | libc::O_TRUNC, is_executable), None);
            assert_eq!(trial(libc::O_NONBLOCK, is_executable), Some(0));
            let direct = Some(libc::O_DIRECT);
            assert_eq!(trial(libc::O_DIRECT, is_executable), direct);
        }
        let appending = libc::O_WRONLY | libc::O_APPEND;
        let flags = appending | libc::O_CREAT | libc::O_TRUNC | libc::O_SYNC;
        assert_eq!(trial(flags, true), Some(appending));
        assert_eq!(trial(flags, false), None);
    }
}

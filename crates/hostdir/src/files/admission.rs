//! Checks made before a file is opened for passthrough, because nothing checks later.
//!
//! The kernel opens the lower file after our answer to OPEN. It does not look at the lower file's inode
//! flags, and whatever stops it (a running program, a mount that became read-only, a lease), the caller
//! gets EIO. So an open that could fail there is checked here first, and tried where a check cannot tell;
//! the caller then gets the real error.
//!
//! What is forbidden stays forbidden in any case; only the error number can be wrong. The caller gets EIO
//! if the lower file changes between our check and the kernel's open: a program started on the host within
//! these microseconds, a mount that became read-only within `MOUNT_FLAGS_MS`, a running program that lost
//! its execute bits.

use super::Files;
use super::open::access;
use crate::tree::{Inode, Noted};
use rustix::fs::{Statx, StatxAttributes};
use std::sync::Arc;
use thrufs::{Context, Errno, Result};
use thrufs_policy::Access;

/// What the inode flags of the lower file forbid to an open with these flags. The kernel above does not know
/// them, and does not check them when it opens the lower file.
pub(super) fn check_attributes(flags: i32, stat: &Statx) -> Result<()> {
    let only_appends = flags & (libc::O_APPEND | libc::O_TRUNC) == libc::O_APPEND;
    let attributes = stat.stx_attributes;
    let forbidden = attributes.contains(StatxAttributes::IMMUTABLE)
        || (attributes.contains(StatxAttributes::APPEND) && !only_appends);
    if access(flags) == Access::Change && forbidden {
        Err(Errno::EPERM)
    } else {
        Ok(())
    }
}

/// Whether a shared mapping could write to an append-only file elsewhere than at its end under
/// passthrough. write(2) cannot: the kernel opens the lower file with `O_APPEND`, and keeps it.
pub(super) fn needs_watching(flags: i32, stat: &Statx) -> bool {
    let reads_and_writes = !matches!(flags & libc::O_ACCMODE, libc::O_RDONLY | libc::O_WRONLY);
    reads_and_writes && stat.stx_attributes.contains(StatxAttributes::APPEND)
}

/// The flags of a trial open of the lower file; `None` if it could tell nothing new: a file without execute
/// bits is not executed, and mount flags are read from the mount.
fn trial(flags: i32, is_executable: bool) -> Option<i32> {
    const TELLING: i32 = libc::O_ACCMODE | libc::O_APPEND | libc::O_DIRECT;
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    let is_special = flags & (libc::O_DIRECT | libc::O_NONBLOCK) != 0;
    (is_special || (writes && is_executable)).then_some(flags & TELLING)
}

impl Files {
    /// Makes sure that the kernel will be able to open the lower file with the client's `flags`. The inode
    /// flags were checked already. Errors: what the kernel would turn into EIO: `EROFS` for a read-only lower
    /// mount, `ETXTBSY` for a running program, `EINVAL` without direct I/O, `EAGAIN` for a lease with
    /// `O_NONBLOCK`; errors of the lower file system.
    pub(crate) fn try_as_the_kernel(
        &self,
        context: &Context<'_>,
        inode: &Arc<Inode>,
        flags: i32,
    ) -> Result<()> {
        if access(flags) == Access::Change && self.tree.mount_is_read_only(inode)? {
            return Err(Errno::EROFS);
        }
        let Some(trial) = trial(flags, inode.noted.has(Noted::Executable)) else {
            return Ok(());
        };
        match self.tree.open_inode(inode, trial | libc::O_NONBLOCK) {
            Err(Errno::EAGAIN) if flags & libc::O_NONBLOCK == 0 => {
                // open(2) waits until the lease is released.
                context.require_blocking()?;
                context.interruptible(|_| self.tree.open_inode(inode, trial).map(drop))
            }
            tried => tried.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trial_open_is_skipped_where_it_cannot_fail() {
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

//! Opening files.

use crate::attributes::content_version;
use crate::config::CacheMode;
use crate::datapath::{DataPath, UseGuard};
use crate::files::{NewOpenFile, OpenFile, set_group_id_stays, stat_open};
use crate::host::Host;
use crate::inode::Inode;
use rustix::fs::{AtFlags, Statx, StatxFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs::{Errno, LowerFile, OpenArgs, Opened, Result};
use thrufs_abi::{FileHandle, NodeId, OpenReplyFlags};
use thrufs_sys::attr;

/// The flags for a lower file, given a client's.
///
/// Without `O_APPEND`: the kernel above has decided where to write, and a lower file that appends
/// would put it elsewhere. Without `O_DIRECT`: transfers need not be aligned as the lower file
/// system wants them. With read access under writeback, where the kernel fills up partial pages.
pub(crate) fn lower_flags(flags: u32, writeback: bool) -> u32 {
    const DROPPED: i32 = libc::O_APPEND
        | libc::O_DIRECT
        | libc::O_CREAT
        | libc::O_EXCL
        | libc::O_NOCTTY
        | libc::O_NONBLOCK
        | libc::O_ASYNC
        | libc::O_NOFOLLOW
        | libc::O_DIRECTORY
        | libc::O_PATH;
    let mut flags = flags as i32 & !(DROPPED | (libc::O_TMPFILE & !libc::O_DIRECTORY));
    if writeback && flags & libc::O_ACCMODE == libc::O_WRONLY {
        flags = flags & !libc::O_ACCMODE | libc::O_RDWR;
    }
    flags as u32
}

impl Host {
    pub(crate) fn open_file(&self, node: NodeId, args: &OpenArgs) -> Result<Opened> {
        let inode = self.nodes.get(node)?;
        if inode.is_directory() {
            return Err(Errno::EISDIR);
        }
        // Fifos, sockets and devices are opened by the kernel itself; a client that asks all the
        // same must not make the server open a device or wait on a fifo.
        if !inode.is_regular() {
            return Err(Errno::ENXIO);
        }
        let flags = lower_flags(args.flags, self.config.writeback) as i32;
        if flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0 {
            self.writable()?;
        }
        let guard = self.use_file(&inode, args.flags as i32, None)?;
        if guard.path() == DataPath::Passthrough {
            self.open_through(guard, flags, args.kill_suidgid)
        } else {
            self.open_lower(guard, flags, args)
        }
    }

    /// Opens a file that the kernel will open for itself.
    fn open_through(&self, guard: UseGuard, flags: i32, kill_suidgid: bool) -> Result<Opened> {
        if flags & libc::O_TRUNC != 0 {
            let descriptor = self.descriptor(guard.inode())?;
            let fd = descriptor.as_fd();
            if kill_suidgid {
                let empty = AtFlags::EMPTY_PATH;
                let stat = rustix::fs::statx(fd, c"", empty, StatxFlags::MODE)?;
                self.truncate_killing(fd, &stat, || Ok(attr::truncate(fd, 0)?))?;
            } else {
                self.credentials.keep_set_ids(true)?;
                attr::truncate(fd, 0)?;
            }
        }
        self.enter_through(guard, flags)
    }

    /// Gives a file that goes straight through a handle.
    pub(crate) fn enter_through(&self, guard: UseGuard, flags: i32) -> Result<Opened> {
        let mut reply = OpenReplyFlags::PASSTHROUGH;
        if self.may_skip_flush.load(Ordering::Relaxed) {
            reply |= OpenReplyFlags::NOFLUSH;
        }
        let backing = guard.backing();
        let handle = self.enter_open_file(NewOpenFile {
            guard,
            lower: None,
            flags: flags & !libc::O_TRUNC,
            set_group_id_stays: false,
            appends: false,
        })?;
        Ok(Opened {
            handle,
            flags: reply,
            backing,
        })
    }

    fn open_lower(&self, guard: UseGuard, flags: i32, args: &OpenArgs) -> Result<Opened> {
        let changes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
        if flags & libc::O_TRUNC != 0 {
            self.credentials.keep_set_ids(!args.kill_suidgid)?;
        }
        if flags & libc::O_TRUNC != 0 && args.kill_suidgid {
            return self.open_truncating(guard, flags);
        }
        // Not under writeback, where whole pages are written back.
        let may_append =
            changes && args.flags as i32 & libc::O_APPEND != 0 && !self.config.writeback;
        let (fd, appends) = match self.open_inode(guard.inode(), flags) {
            // Perhaps a file that can only be appended to (`chattr +a`).
            Err(Errno::EPERM) if may_append => {
                let fd = self.open_inode(guard.inode(), flags | libc::O_APPEND)?;
                (fd, true)
            }
            opened => (opened?, false),
        };
        self.enter_lower(guard, fd, flags, None, appends)
    }

    /// Opens for a caller whose truncation must drop set-id bits: by a call of its own, since what
    /// falls depends on the mode.
    fn open_truncating(&self, guard: UseGuard, flags: i32) -> Result<Opened> {
        // An open that truncates needs write access, whatever else it asks for.
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let access = if writes { 0 } else { libc::O_RDWR };
        let fd = self.open_inode(guard.inode(), flags & !libc::O_TRUNC | access)?;
        let stat = stat_open(&fd)?;
        self.truncate_killing(fd.as_fd(), &stat, || Ok(rustix::fs::ftruncate(&fd, 0)?))?;
        let stat = stat_open(&fd)?;
        self.enter_lower(guard, fd, flags, Some(&stat), false)
    }

    /// Runs `truncate` so that set-user-id, set-group-id and capabilities of the file, whose
    /// attributes are `stat`, fall as FUSE wants it.
    pub(crate) fn truncate_killing(
        &self,
        fd: BorrowedFd<'_>,
        stat: &Statx,
        truncate: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let stays = set_group_id_stays(stat);
        self.credentials.keep_set_ids(stays)?;
        truncate()?;
        if stays { self.kill_set_ids(fd) } else { Ok(()) }
    }

    /// Gives a file whose lower file was opened a handle.
    pub(crate) fn enter_lower(
        &self,
        guard: UseGuard,
        fd: OwnedFd,
        flags: i32,
        stat: Option<&Statx>,
        appends: bool,
    ) -> Result<Opened> {
        let writable = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let stat = match stat {
            Some(stat) => Some(*stat),
            None if writable || self.config.cache == CacheMode::Auto => Some(stat_open(&fd)?),
            None => None,
        };
        let inode = guard.inode();
        let reply = self.lower_reply_flags(inode, guard.path(), writable, stat.as_ref());
        let lower = Arc::new(LowerFile::new(fd, inode.mount().no_wait()));
        inode.set_opened(&lower);
        let appending = if appends { libc::O_APPEND } else { 0 };
        let handle = self.enter_open_file(NewOpenFile {
            guard,
            lower: Some(lower),
            flags: flags & !libc::O_TRUNC | appending,
            set_group_id_stays: stat.as_ref().is_some_and(set_group_id_stays),
            appends,
        })?;
        Ok(Opened {
            handle,
            flags: reply,
            backing: None,
        })
    }

    fn enter_open_file(&self, new: NewOpenFile) -> Result<FileHandle> {
        let mut handle = FileHandle(0);
        self.files
            .insert_with(|id| {
                handle = FileHandle(id);
                OpenFile::new(new)
            })
            .map_err(|_| Errno::ENFILE)?;
        Ok(handle)
    }

    fn lower_reply_flags(
        &self,
        inode: &Inode,
        path: DataPath,
        writable: bool,
        stat: Option<&Statx>,
    ) -> OpenReplyFlags {
        let version = stat.map(content_version);
        let mut flags = match (path, self.config.cache) {
            (DataPath::Direct, _) | (_, CacheMode::Never) => {
                OpenReplyFlags::DIRECT_IO | OpenReplyFlags::PARALLEL_DIRECT_WRITES
            }
            (_, CacheMode::Always) => OpenReplyFlags::KEEP_CACHE,
            (_, CacheMode::Auto) => {
                if version.is_some_and(|version| inode.same_version_as_cached(version)) {
                    OpenReplyFlags::KEEP_CACHE
                } else {
                    OpenReplyFlags::empty()
                }
            }
        };
        // A writer's close waits for the lower file to be closed, by a FLUSH.
        let settles = writable || inode.mount().is_remote();
        if self.may_skip_flush.load(Ordering::Relaxed) && !settles {
            flags |= OpenReplyFlags::NOFLUSH;
        }
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_file_never_appends_and_never_waits_for_alignment() {
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_DIRECT | libc::O_CREAT | libc::O_SYNC;
        assert_eq!(
            lower_flags(flags as u32, false) as i32,
            libc::O_WRONLY | libc::O_SYNC
        );
        assert_eq!(
            lower_flags(libc::O_WRONLY as u32, true) as i32,
            libc::O_RDWR
        );
        let tmpfile = (libc::O_TMPFILE | libc::O_RDWR) as u32;
        assert_eq!(lower_flags(tmpfile, false) as i32, libc::O_RDWR);
    }
}

//! Whether a program on the host may be storing to a file that a program above could map shared.
//!
//! Without passthrough, such a map shows nothing of what is stored beneath, and its pages are written back over
//! that. Programs that share memory lock the file, which the [mount](crate::files::mount_lock) sees to. For
//! others, an open for reading and writing of a file that is open for writing beneath is answered so that the
//! file is not cached for it, and mmap(2) with `MAP_SHARED` fails with `ENODEV`. So are all opens until the last of
//! them ends.

use super::Files;
use super::guard::UseGuard;
use super::lock_owners::MOUNT;
use super::open_file::OpenFile;
use crate::tree::{Inode, Noted, Use};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use thrufs::{Context, OpenArgs, Opened, Result};
use thrufs_abi::OpenReplyFlags;
use thrufs_policy::DataPath;
use thrufs_sys::lease;

/// How often a write is repeated.
const REPEATS_MAX: usize = 100;

/// How long a stored duplicate of a file of our own may take to close, in milliseconds.
const DISCARD_MS_MAX: u32 = 10;

/// The same for files of a process that died: what is left of that may wait in the kernel for answers of this one.
const LEFT_MS_MAX: u32 = 1000;

impl Files {
    /// Whether the file of an open is open for writing beneath, or was at an open that has not ended and through which
    /// somebody wrote or locked. Our own writers cannot be told from others, so it is not asked while there are some,
    /// nor while owners of locks have files of their own; nor where a writer has tried to lock a range.
    pub(super) fn is_written_beneath(
        &self,
        context: &Context<'_>,
        guard: &UseGuard,
        args: &OpenArgs,
    ) -> Result<bool> {
        let flags = args.flags as i32;
        let may_map = flags & libc::O_ACCMODE == libc::O_RDWR && flags & libc::O_TRUNC == 0;
        let inode = guard.inode();
        let is_cached = guard.path() == DataPath::Cached && guard.filter().is_none();
        if is_cached && inode.uses.is_some_and(|it| it.is_unmapped) {
            if self.locks.has_any(inode.node()) || self.was_written_through(inode) {
                return Ok(true);
            }
            // SQLite, for one, closes the file when it finds it locked, and opens it again.
            if let Some(uses) = inode.uses.lock().as_mut() {
                uses.is_unmapped = false;
            }
        }
        let is_asked = may_map
            && is_cached
            && self.follow.is_started()
            && !self.have_lock_files(inode)
            && !inode.noted.has(Noted::TakesTurns);
        let is_only_writer = || {
            inode
                .uses
                .lock()
                .as_ref()
                .is_some_and(|it| it.writable_opens == 1)
        };
        if !is_asked || !is_only_writer() {
            return Ok(false);
        }
        let Ok(lower) = self.tree.open_inode(inode, libc::O_RDONLY) else {
            return Ok(false);
        };
        let writers_ms_max = match self.left.may_have_writers() {
            true => LEFT_MS_MAX,
            false => DISCARD_MS_MAX,
        };
        for _ in 0..writers_ms_max {
            if !lease::has_writers(lower.as_fd()).unwrap_or(false) || !is_only_writer() {
                return Ok(false);
            }
            if self.tree.fd_store().is_none() {
                break;
            }
            context.require_blocking()?;
            thread::sleep(Duration::from_millis(1));
        }
        let mut uses = inode.uses.lock();
        let only = uses.as_mut().filter(|it| it.writable_opens == 1);
        Ok(only.map(|it| it.is_unmapped = true).is_some())
    }

    /// Whether an open file of now was written through.
    fn was_written_through(&self, inode: &Inode) -> bool {
        let mut files = self.files.iter().map(|(_, file)| file);
        let is_written = |file: &OpenFile| file.written.load(Ordering::Relaxed);
        files.any(|file| file.node() == inode.node() && is_written(&file))
    }

    /// Whether owners of locks, or the mount for them, have the file open.
    fn have_lock_files(&self, inode: &Inode) -> bool {
        self.locks.has_any(inode.node()) || self.locks.get(inode.node(), MOUNT).is_some()
    }

    /// Whether the next open for reading and writing would be refused shared maps. `open` opens
    /// the file beneath for reading only.
    pub(crate) fn would_refuse_maps(
        &self,
        inode: Option<&Inode>,
        path: DataPath,
        open: impl FnOnce() -> Option<OwnedFd>,
    ) -> bool {
        let has_writer = |inode: &Inode| {
            let uses = inode.uses.lock();
            uses.as_ref().is_some_and(|it| it.writable_opens > 0)
        };
        path == DataPath::Cached
            && !self.kernel_opens_files.load(Ordering::Relaxed)
            && self.follow.is_started()
            && !inode.is_some_and(|inode| {
                self.have_lock_files(inode)
                    || inode.noted.has(Noted::TakesTurns)
                    || has_writer(inode)
            })
            && open().is_some_and(|lower| lease::has_writers(lower).unwrap_or(false))
    }

    /// Writes to a file. The kernel above drops the pages that a write without a cache changes before it sends it. If
    /// another program maps the file, the kernel may have read one again since, and would write it back over what is
    /// written. So pages are dropped once more, and it is written again until none was read meanwhile.
    pub(super) fn write_past_pages(
        &self,
        context: &Context<'_>,
        file: &OpenFile,
        write: impl Fn() -> Result<usize>,
    ) -> Result<usize> {
        let inode = file.inode();
        let is_shared = || inode.uses.is_some_and(Use::is_shared);
        if !file.is_uncached.load(Ordering::Relaxed) || !is_shared() {
            return write();
        }
        context.require_blocking()?;
        for _ in 0..REPEATS_MAX {
            inode.noted.take_pages_read();
            if let Err(error) = self.mount_locks.drop_pages(inode.node(), context.uid()) {
                tracing::debug!(node = ?inode.node(), %error, "pages stay while a file is written");
                break;
            }
            let written = write()?;
            if !inode.noted.take_pages_read() {
                return Ok(written);
            }
        }
        // A map may have what was before.
        write()
    }

    /// Makes an answer to OPEN one that permits no shared map.
    pub(super) fn without_maps(&self, inode: &Inode, opened: Opened) -> Opened {
        self.unmapped_opens.fetch_add(1, Ordering::Relaxed);
        inode.noted.set(Noted::HasUncached);
        if let Some(file) = self.files.get(opened.handle.0) {
            file.is_uncached.store(true, Ordering::Relaxed);
        }
        Opened {
            flags: opened.flags.difference(OpenReplyFlags::KEEP_CACHE) | OpenReplyFlags::DIRECT_IO,
            ..opened
        }
    }
}

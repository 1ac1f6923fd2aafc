//! Open files: READ, WRITE, FLUSH, RELEASE, FSYNC, FALLOCATE, LSEEK, COPY_FILE_RANGE and IOCTL.
//!
//! A request must name a node and a handle that belong together. Data are never copied here: the transport
//! moves them from and to the lower file. Opening is in [`open`](crate::files::open).

use super::Files;
use super::open_file::OpenFile;
use super::privileges::loses_set_ids;
use crate::config::CacheMode;
use crate::stat::content_version;
use crate::stat::stat_open;
use crate::tree::{Descriptor, Inode, Noted};
use rustix::fs::{Access, AtFlags, FallocateFlags, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use thrufs::{
    Context, CopyArgs, Errno, LowerFile, ReadAnswer, ReadArgs, ReadReply, ReleaseArgs, Result,
    WriteArgs, WriteSource,
};
use thrufs_abi::{FileHandle, LockOwner, NodeId};
use thrufs_policy::DataPath;
use thrufs_sys::lease;
use thrufs_sys::lock::LockKind;

impl Files {
    pub(crate) fn file(&self, handle: FileHandle) -> Result<Arc<OpenFile>> {
        self.have_locks();
        self.files.get(handle.0).ok_or(Errno::EBADF)
    }

    /// An open file of `node`. A handle of another file is refused, because the decision was made about
    /// this one; no kernel sends it.
    pub(crate) fn file_of(&self, node: NodeId, handle: FileHandle) -> Result<Arc<OpenFile>> {
        let file = self.file(handle)?;
        if file.node() == node {
            Ok(file)
        } else {
            Err(Errno::EBADF)
        }
    }

    /// The lower file of an open file; under passthrough, one for this request alone.
    pub(crate) fn lower(&self, file: &OpenFile, for_writing: bool) -> Result<Arc<LowerFile>> {
        let passthrough = file.is_passthrough();
        if let Some(kept) = file.kept().filter(|_| !(passthrough && for_writing)) {
            return Ok(kept);
        }
        let flags = match (passthrough, for_writing) {
            // Readers rely on it that no lower file is writable without write permission.
            (false, false) if self.may_write(file).is_err() => libc::O_RDONLY,
            (false, _) => file.flags,
            (true, true) => libc::O_RDWR,
            (true, false) => libc::O_RDONLY,
        };
        let fd = self.open_again_raw(file, flags)?;
        let lower = Arc::new(LowerFile::new(fd, file.inode().mount().no_wait));
        if passthrough {
            return Ok(lower);
        }
        let kept = file.keep(lower);
        file.inode().lower.set_opened(&kept);
        Ok(kept)
    }

    /// The lower file that carries the open file's `flock(2)`, kept until it is released.
    pub(crate) fn lower_to_lock(&self, file: &OpenFile) -> Result<Arc<LowerFile>> {
        if !file.was_locked() {
            file.set_flock(Some(LockKind::Unlock));
        }
        // Under passthrough, not for writing: the file could not be executed on the host while it is kept.
        Ok(file.keep(self.lower(file, false)?))
    }

    pub(crate) fn open_again_raw(&self, file: &OpenFile, flags: i32) -> Result<OwnedFd> {
        if file.lost.load(Ordering::Relaxed) {
            return Err(Errno::EIO);
        }
        let lower = file.lower.lock();
        if let Some(pin) = &lower.pin {
            return self.tree.reopen(pin.as_fd(), flags);
        }
        let kept = lower.file.clone();
        drop(lower);
        match kept {
            Some(kept) => self.tree.reopen(kept.as_fd(), flags),
            None => self.tree.open_inode(file.inode(), flags),
        }
    }

    pub(crate) fn read(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &ReadArgs,
        reply: ReadReply<'_>,
    ) -> Result<ReadAnswer> {
        let file = self.file_for(node, args.handle, libc::O_RDONLY)?;
        self.follow.end_silence(file.inode());
        if let Some(filter) = file.guard.filter() {
            return self.read_filtered(context, &file, filter, args, reply);
        }
        if !file.is_uncached.load(Ordering::Relaxed) {
            file.inode().noted.set_pages_read();
        }
        let lower = self.lower(&file, false)?;
        if self.is_opened_by_kernel(args.handle) {
            let has_writers = || lease::has_writers(&*lower).unwrap_or(false);
            self.follow.data_will_be_kept(file.inode(), has_writers);
        }
        Ok(reply.file(lower, args.offset))
    }

    /// Keeps callers other than root from the blocks that a file system reserves for root; whatever is free is.
    pub(crate) fn leave_reserved_blocks(&self, context: &Context<'_>, inode: &Inode) -> Result<()> {
        self.tree.freeing.settle();
        if context.uid().is_none_or(|uid| uid == 0) || inode.mount().is_remote {
            return Ok(());
        }
        self.tree.credentials.drop_server_ids()
    }

    pub(crate) fn write(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &WriteArgs,
        data: WriteSource<'_>,
    ) -> Result<usize> {
        let flags = args.flags as i32 & (libc::O_APPEND | libc::O_SYNC);
        let file = self.file_for(node, args.handle, libc::O_WRONLY | flags)?;
        self.config.writable()?;
        self.may_write(&file)?;
        // The kernel keeps the pages.
        self.follow.end_silence(file.inode());
        if args.from_cache && file.inode().noted.has(Noted::TakesTurns) {
            file.inode().noted.set(Noted::StoredTo);
        }
        let lower = self.lower(&file, true)?;
        if file.appends && args.offset != stat_open(&*lower)?.stx_size {
            // Elsewhere than at the end: forbidden by the file, and the lower file would append instead.
            return Err(Errno::EPERM);
        }
        let end = args.offset.saturating_add(data.len() as u64);
        let size = || Ok(stat_open(&*lower)?.stx_size);
        self.tree.dax.may_write_to(file.inode(), end, size)?;
        file.mark_written();
        self.leave_reserved_blocks(context, file.inode())?;
        let write = || self.write_past_pages(context, &file, || data.write_to(&lower, args.offset));
        let kills = self.kills_set_ids(context, lower.as_fd(), args.kill_suidgid)?;
        let written = self.change_file(context, (args.handle, &file), &lower, || {
            self.change_content(file.inode(), lower.as_fd(), kills, write)
        });
        if file.inode().mount().is_remote && self.is_opened_by_kernel(args.handle) {
            // Otherwise the error of a close(2) that nobody hears of.
            sync(&*lower, true)?;
        }
        written
    }

    pub(crate) fn flush(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        owner: LockOwner,
    ) -> Result<()> {
        if self.is_opened_by_kernel(handle) {
            // For the whole connection, too.
            return Err(Errno::ENOSYS);
        }
        let file = self.file_of(node, handle)?;
        self.release_owner(file.inode().node(), owner);
        if file.writable && !file.is_passthrough() {
            if file.inode().mount().is_remote {
                context.require_blocking()?;
            }
            self.give_up_lower(context, &file)?;
        }
        Ok(())
    }

    /// Closes the lower file of a writer before the client's close(2) returns, and reports its errors: no
    /// later close is reported to the client.
    fn give_up_lower(&self, context: &Context<'_>, file: &OpenFile) -> Result<()> {
        let Some(pin) = self.pin_for_later(file) else {
            // It cannot be opened again, so it stays.
            return match file.kept() {
                Some(kept) if file.inode().mount().is_remote => {
                    close_and_report(rustix::io::fcntl_dupfd_cloexec(&*kept, 3)?)
                }
                _ => Ok(()),
            };
        };
        match file.take(pin) {
            Some(kept) => close_alone(context, file, kept),
            None => Ok(()),
        }
    }

    /// Closes the lower file if it can be opened again.
    pub(crate) fn close_lower(&self, file: &OpenFile) {
        if let Some(pin) = self.pin_for_later(file) {
            drop(file.take(pin));
        }
    }

    /// A descriptor from which the lower file can surely be opened again. `None` with a `flock(2)`, which
    /// would be lost.
    fn pin_for_later(&self, file: &OpenFile) -> Option<Descriptor> {
        if file.was_locked() {
            return None;
        }
        let pin = self.tree.descriptor(file.inode()).ok()?;
        if matches!(pin, Descriptor::Opened(_)) {
            return None;
        }
        let sure = self.tree.credentials.overrides_modes() || {
            let wanted = match file.flags & libc::O_ACCMODE {
                libc::O_RDONLY => Access::READ_OK,
                libc::O_RDWR => Access::READ_OK | Access::WRITE_OK,
                _ => Access::WRITE_OK,
            };
            let flags = AtFlags::EACCESS | AtFlags::EMPTY_PATH;
            rustix::fs::accessat(&pin, c"", wanted, flags).is_ok()
        };
        sure.then_some(pin)
    }

    pub(crate) fn release(&self, _: &Context<'_>, node: NodeId, args: &ReleaseArgs) {
        self.have_locks();
        if self.file_of(node, args.handle).is_err() {
            return;
        }
        let Some(file) = self.close_file(args.handle) else {
            return;
        };
        if file.version != 0 {
            file.inode().cached_version.set(file.version);
        }
        let cached = file.guard.path() == DataPath::Cached;
        let is_written = self.config.writeback && file.written.load(Ordering::Relaxed);
        if cached && self.config.cache == CacheMode::Auto && is_written {
            // The kernel's cache of what was written back goes by the kernel's own size and times. Without
            // writeback the kernel drops its pages when it gets the new time.
            let stat = match file.kept() {
                Some(lower) => stat_open(&*lower),
                None => self.tree.stat(file.inode()),
            };
            if let Ok(stat) = stat {
                file.inode().cached_version.set(content_version(&stat));
            }
        }
        self.release_owners_of(args.handle);
        let inode = Arc::clone(file.inode());
        drop(file);
        self.tree.was_closed(&inode);
        if self.tree.dax.window().is_some() {
            self.tree.dax.closed(&inode);
        }
    }

    pub(crate) fn fsync(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        data_only: bool,
    ) -> Result<()> {
        let file = self.file_for(node, handle, libc::O_RDONLY)?;
        if !file.inode().mount().is_memory() {
            context.require_blocking()?;
        }
        file.synced(sync(&*self.lower(&file, false)?, data_only))
    }

    pub(crate) fn fallocate(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: u32,
    ) -> Result<()> {
        self.config.writable()?;
        let file = self.file_for(node, handle, libc::O_WRONLY)?;
        if !file.inode().mount().is_memory() {
            context.require_blocking()?;
        }
        file.mark_written();
        let mode = FallocateFlags::from_bits_retain(mode);
        self.may_write(&file)?;
        let lower = self.lower(&file, true)?;
        self.leave_reserved_blocks(context, file.inode())?;
        let size = || Ok(stat_open(&*lower)?.stx_size);
        if mode.intersects(FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE) {
            self.tree.dax.may_resize(file.inode())?;
        } else if !mode.contains(FallocateFlags::KEEP_SIZE) {
            let end = offset.saturating_add(length);
            self.tree.dax.may_write_to(file.inode(), end, size)?;
        }
        let allocate = || Ok(rustix::fs::fallocate(&*lower, mode, offset, length)?);
        let loses = self.kills_set_ids(context, lower.as_fd(), loses_set_ids(context))?;
        self.change_file(context, (handle, &file), &lower, || {
            self.change_content(file.inode(), lower.as_fd(), loses, allocate)
        })
    }

    pub(crate) fn lseek(
        &self,
        _: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        whence: u32,
    ) -> Result<u64> {
        let file = self.file_for(node, handle, libc::O_RDONLY)?;
        let from = match whence as i32 {
            libc::SEEK_DATA => SeekFrom::Data(offset),
            libc::SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(Errno::EINVAL),
        };
        // No other request uses the position that this moves: all I/O names its offset.
        Ok(rustix::fs::seek(&*self.lower(&file, false)?, from)?)
    }

    pub(crate) fn copy_file_range(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &CopyArgs,
    ) -> Result<u64> {
        self.config.writable()?;
        if args.flags != 0 {
            return Err(Errno::EINVAL);
        }
        let from = self.file_for(node, args.handle_in, libc::O_RDONLY)?;
        let to = self.file_for(args.node_out, args.handle_out, libc::O_WRONLY)?;
        if from.guard.filter().is_some() {
            // The kernel then copies what it may read.
            return Err(Errno::EOPNOTSUPP);
        }
        if !(from.inode().mount().is_memory() && to.inode().mount().is_memory()) {
            context.require_blocking()?;
        }
        to.mark_written();
        let (mut offset_in, mut offset_out) = (args.offset_in, args.offset_out);
        let length = usize::try_from(args.length).unwrap_or(usize::MAX);
        self.may_write(&to)?;
        let (source, target) = (self.lower(&from, false)?, self.lower(&to, true)?);
        self.leave_reserved_blocks(context, to.inode())?;
        let size = || Ok(stat_open(&*target)?.stx_size);
        let end = offset_out.saturating_add(args.length);
        self.tree.dax.may_write_to(to.inode(), end, size)?;
        let copy = || {
            let (offset_in, offset_out) = (Some(&mut offset_in), Some(&mut offset_out));
            let copied =
                rustix::fs::copy_file_range(&*source, offset_in, &*target, offset_out, length)?;
            Ok(copied as u64)
        };
        let loses = self.kills_set_ids(context, target.as_fd(), loses_set_ids(context))?;
        self.change_file(context, (args.handle_out, &to), &target, || {
            self.change_content(to.inode(), target.as_fd(), loses, copy)
        })
    }
}

pub(crate) fn sync(fd: impl AsFd, data_only: bool) -> Result<()> {
    let synced = match data_only {
        true => rustix::fs::fdatasync(fd),
        false => rustix::fs::fsync(fd),
    };
    Ok(synced?)
}

/// How often a thread that may not sleep tries again, and how long one waits that may.
const TURNS_MAX: u32 = 100;
const USERS_PATIENCE: Duration = Duration::from_secs(5);
const USERS_INTERVAL: Duration = Duration::from_micros(20);

/// Closes the lower file of an open file once no other request uses it, and reports its errors. The thread
/// that answered a READ has it for a moment longer, and a read-ahead for as long as it takes. Fails with
/// `DEFER` where that lasts and the thread may not sleep: then the open file keeps it.
fn close_alone(context: &Context<'_>, file: &OpenFile, mut lower: Arc<LowerFile>) -> Result<()> {
    let mut turns = 0;
    let mut started = None;
    loop {
        lower = match Arc::try_unwrap(lower) {
            Ok(alone) => return close_and_report(alone.into_fd()),
            Err(used) => used,
        };
        if turns < TURNS_MAX {
            turns += 1;
            std::thread::yield_now();
            continue;
        }
        if let Err(defer) = context.require_blocking() {
            file.keep(lower);
            return Err(defer);
        }
        if started.get_or_insert_with(Instant::now).elapsed() >= USERS_PATIENCE {
            // The request that uses it closes it.
            return Ok(());
        }
        std::thread::sleep(USERS_INTERVAL);
    }
}

fn close_and_report(fd: OwnedFd) -> Result<()> {
    Ok(thrufs_sys::closing::close(fd)?)
}

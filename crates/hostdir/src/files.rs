//! Open files.

use crate::attributes::content_version;
use crate::config::CacheMode;
use crate::host::{BASIC, Host};
use crate::inode::Inode;
use rustix::fs::{AtFlags, FallocateFlags, SeekFrom, Statx};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thrufs::{
    Context, CopyArgs, Errno, LowerFile, OpenArgs, Opened, ReadAnswer, ReadArgs, ReadReply,
    ReleaseArgs, Result, WriteArgs, WriteSource,
};
use thrufs_abi::{FileHandle, LockOwner, NodeId, OpenReplyFlags};
use thrufs_sys::ioctl;

/// A file that a client has open, and the lower file that was opened for it.
pub(crate) struct OpenFile {
    inode: Arc<Inode>,
    lower: Arc<LowerFile>,
    writable: bool,
    written: AtomicBool,
    /// See [`set_group_id_stays`].
    set_group_id_stays: bool,
    /// The lower file appends, whatever offset it is given (`chattr +a`).
    appends: bool,
}

impl OpenFile {
    pub(crate) fn lower(&self) -> &Arc<LowerFile> {
        &self.lower
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    pub(crate) fn mark_written(&self) {
        self.written.store(true, Ordering::Relaxed);
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.inode.mount().file_closed();
    }
}

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
    pub(crate) fn file(&self, handle: FileHandle) -> Result<Arc<OpenFile>> {
        self.files.get(handle.0).ok_or(Errno::EBADF)
    }

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
        let changes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
        if changes {
            self.writable()?;
        }
        if flags & libc::O_TRUNC != 0 {
            self.credentials.keep_set_ids(!args.kill_suidgid)?;
        }
        if flags & libc::O_TRUNC != 0 && args.kill_suidgid {
            return self.open_truncating(&inode, flags, args.flags);
        }
        // Not under writeback, where whole pages are written back.
        let may_append =
            changes && args.flags as i32 & libc::O_APPEND != 0 && !self.config.writeback;
        let (fd, appends) = match self.open_inode(&inode, flags) {
            // Perhaps a file that can only be appended to (`chattr +a`).
            Err(Errno::EPERM) if may_append => {
                (self.open_inode(&inode, flags | libc::O_APPEND)?, true)
            }
            opened => (opened?, false),
        };
        self.enter_file(&inode, fd, args.flags, None, appends)
    }

    /// Opens for a caller whose truncation must drop set-id bits: by a call of its own, since what
    /// falls depends on the mode.
    fn open_truncating(&self, inode: &Arc<Inode>, flags: i32, asked: u32) -> Result<Opened> {
        // An open that truncates needs write access, whatever else it asks for.
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let access = if writes { 0 } else { libc::O_RDWR };
        let fd = self.open_inode(inode, flags & !libc::O_TRUNC | access)?;
        let stat = stat_open(&fd)?;
        self.truncate_killing(fd.as_fd(), &stat, || Ok(rustix::fs::ftruncate(&fd, 0)?))?;
        let stat = stat_open(&fd)?;
        self.enter_file(inode, fd, asked, Some(&stat), false)
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

    /// Gives an opened lower file a handle.
    pub(crate) fn enter_file(
        &self,
        inode: &Arc<Inode>,
        fd: OwnedFd,
        flags: u32,
        stat: Option<&Statx>,
        appends: bool,
    ) -> Result<Opened> {
        let writable = flags as i32 & libc::O_ACCMODE != libc::O_RDONLY;
        let stat = match stat {
            Some(stat) => Some(*stat),
            None if writable || self.config.cache == CacheMode::Auto => Some(stat_open(&fd)?),
            None => None,
        };
        let reply = self.open_reply_flags(inode, stat.as_ref());
        let set_group_id_stays = stat.as_ref().is_some_and(set_group_id_stays);
        let lower = Arc::new(LowerFile::new(fd, inode.mount().no_wait()));
        inode.set_opened(&lower);
        inode.mount().file_opened();
        let inode = Arc::clone(inode);
        let mut handle = FileHandle(0);
        self.files
            .insert_with(|id| {
                handle = FileHandle(id);
                let written = AtomicBool::new(false);
                OpenFile {
                    inode,
                    lower,
                    writable,
                    written,
                    set_group_id_stays,
                    appends,
                }
            })
            .map_err(|_| Errno::ENFILE)?;
        Ok(Opened {
            handle,
            flags: reply,
            backing: None,
        })
    }

    fn open_reply_flags(&self, inode: &Inode, stat: Option<&Statx>) -> OpenReplyFlags {
        let mut flags = match self.config.cache {
            CacheMode::Never => OpenReplyFlags::DIRECT_IO | OpenReplyFlags::PARALLEL_DIRECT_WRITES,
            CacheMode::Always => OpenReplyFlags::KEEP_CACHE,
            CacheMode::Auto => {
                let unchanged =
                    stat.is_some_and(|stat| inode.same_version_as_cached(content_version(stat)));
                if unchanged {
                    OpenReplyFlags::KEEP_CACHE
                } else {
                    OpenReplyFlags::empty()
                }
            }
        };
        if self.may_skip_flush.load(Ordering::Relaxed) && !inode.mount().is_remote() {
            flags |= OpenReplyFlags::NOFLUSH;
        }
        flags
    }

    pub(crate) fn read(&self, args: &ReadArgs, reply: ReadReply<'_>) -> Result<ReadAnswer> {
        let file = self.file(args.handle)?;
        Ok(reply.file(Arc::clone(&file.lower), args.offset))
    }

    pub(crate) fn write(&self, args: &WriteArgs, data: WriteSource<'_>) -> Result<usize> {
        let file = self.file(args.handle)?;
        self.writable()?;
        if file.appends && args.offset != stat_open(&*file.lower)?.stx_size {
            // Elsewhere than at the end: what the file forbids, and what the lower file would not
            // do, whatever it answered.
            return Err(Errno::EPERM);
        }
        let stays = file.set_group_id_stays;
        self.credentials.keep_set_ids(!args.kill_suidgid || stays)?;
        file.mark_written();
        let written = data.write_to(&file.lower, args.offset)?;
        if args.kill_suidgid && stays {
            self.kill_set_ids(file.lower.as_fd())?;
        }
        Ok(written)
    }

    pub(crate) fn flush(
        &self,
        context: &Context<'_>,
        handle: FileHandle,
        owner: LockOwner,
    ) -> Result<()> {
        let file = self.file(handle)?;
        self.locks.release_owner(file.inode.node(), owner);
        if file.writable && file.inode.mount().is_remote() {
            // Such file systems report what went wrong with written data at close(2), and this is
            // the only close whose result anybody sees.
            context.require_blocking()?;
            let copy = rustix::io::fcntl_dupfd_cloexec(&*file.lower, 3)?;
            close_and_report(copy)?;
        }
        Ok(())
    }

    pub(crate) fn release_file(&self, args: &ReleaseArgs) {
        let Some(file) = self.files.remove(args.handle.0) else {
            return;
        };
        if self.config.cache == CacheMode::Auto && file.written.load(Ordering::Relaxed) {
            // What was written through here is what the kernel has cached.
            if let Ok(stat) = stat_open(&*file.lower) {
                file.inode.set_cached_version(content_version(&stat));
            }
        }
        self.locks.release_handle(args.handle);
    }

    pub(crate) fn fsync(
        &self,
        context: &Context<'_>,
        handle: FileHandle,
        data_only: bool,
    ) -> Result<()> {
        let file = self.file(handle)?;
        if !file.inode.mount().is_memory() {
            context.require_blocking()?;
        }
        sync(&*file.lower, data_only)
    }

    pub(crate) fn fallocate(
        &self,
        context: &Context<'_>,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: u32,
    ) -> Result<()> {
        self.writable()?;
        let file = self.file(handle)?;
        if !file.inode.mount().is_memory() {
            context.require_blocking()?;
        }
        // Set-id bits that must fall were dropped by a SETATTR before this.
        self.credentials.keep_set_ids(true)?;
        file.mark_written();
        let mode = FallocateFlags::from_bits_retain(mode);
        Ok(rustix::fs::fallocate(&*file.lower, mode, offset, length)?)
    }

    pub(crate) fn lseek(&self, handle: FileHandle, offset: u64, whence: u32) -> Result<u64> {
        let file = self.file(handle)?;
        let from = match whence as i32 {
            libc::SEEK_DATA => SeekFrom::Data(offset),
            libc::SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(Errno::EINVAL),
        };
        // The position that this moves is used by nobody: all I/O names its offset.
        Ok(rustix::fs::seek(&*file.lower, from)?)
    }

    pub(crate) fn copy_file_range(&self, context: &Context<'_>, copy: &CopyArgs) -> Result<u64> {
        self.writable()?;
        if copy.flags != 0 {
            return Err(Errno::EINVAL);
        }
        let from = self.file(copy.handle_in)?;
        let to = self.file(copy.handle_out)?;
        if !(from.inode.mount().is_memory() && to.inode.mount().is_memory()) {
            context.require_blocking()?;
        }
        self.credentials.keep_set_ids(true)?;
        to.mark_written();
        let (mut offset_in, mut offset_out) = (copy.offset_in, copy.offset_out);
        let length = usize::try_from(copy.length).unwrap_or(usize::MAX);
        let copied = rustix::fs::copy_file_range(
            &*from.lower,
            Some(&mut offset_in),
            &*to.lower,
            Some(&mut offset_out),
            length,
        )?;
        Ok(copied as u64)
    }

    pub(crate) fn ioctl(
        &self,
        node: NodeId,
        handle: FileHandle,
        command: u32,
        data: &mut [u8],
    ) -> Result<(i32, usize)> {
        let changes = matches!(command, ioctl::FS_IOC_SETFLAGS | ioctl::FS_IOC_FSSETXATTR);
        if changes {
            self.writable()?;
        }
        let inode = self.nodes.get(node)?;
        let result = if inode.is_directory() {
            ioctl::file_ioctl(self.directory(handle)?.fd(), command, data)?
        } else {
            ioctl::file_ioctl(&*self.file(handle)?.lower, command, data)?
        };
        Ok((result, if changes { 0 } else { data.len() }))
    }
}

/// Whether a file has the set-group-id bit without execution by its group. There the bit means
/// something else (mandatory locking, once) and stays when others write. The lower file system
/// would drop it all the same, unless the writer is in the file's group: as far as it can see, the
/// writer is this thread.
fn set_group_id_stays(stat: &Statx) -> bool {
    u32::from(stat.stx_mode) & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID
}

fn stat_open(fd: impl AsFd) -> Result<Statx> {
    Ok(rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, BASIC)?)
}

/// fsync(2) or fdatasync(2).
pub(crate) fn sync(fd: impl AsFd, data_only: bool) -> Result<()> {
    if data_only {
        rustix::fs::fdatasync(fd)?;
    } else {
        rustix::fs::fsync(fd)?;
    }
    Ok(())
}

fn close_and_report(fd: OwnedFd) -> Result<()> {
    Ok(thrufs_sys::closing::close(fd)?)
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

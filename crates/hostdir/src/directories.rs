//! Open directories, and listing them.

use crate::config::CacheMode;
use crate::host::Host;
use crate::inode::Inode;
use crate::policy::Access;
use crate::rules::{Told, permitted};
use parking_lot::Mutex;
use rustix::fs::SeekFrom;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use thrufs::{Context, DirectorySink, Errno, Opened, ReleaseArgs, Result};
use thrufs_abi::{FileHandle, NodeId, OpenReplyFlags};
use thrufs_sys::dir::{DirEntries, DirEntry, getdents64};

/// What is read from a directory at once.
const BUFFER_BYTES: usize = 32 * 1024;

/// A directory that a client has open.
pub(crate) struct OpenDirectory {
    inode: Arc<Inode>,
    fd: OwnedFd,
    stream: Mutex<Stream>,
}

/// What was read from the directory and not yet handed on.
#[derive(Default)]
struct Stream {
    buffer: Vec<u8>,
    /// The unread part of the buffer.
    start: usize,
    end: usize,
    /// Where the unread part starts, as the lower file system counts.
    position: u64,
}

impl OpenDirectory {
    pub(crate) fn node(&self) -> NodeId {
        self.inode.node()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for OpenDirectory {
    fn drop(&mut self) {
        self.inode.mount().file_closed();
    }
}

impl Stream {
    fn seek(&mut self, fd: &OwnedFd, offset: u64) -> Result<()> {
        if self.position == offset && self.end > 0 {
            return Ok(());
        }
        rustix::fs::seek(fd, SeekFrom::Start(offset))?;
        self.start = 0;
        self.end = 0;
        self.position = offset;
        Ok(())
    }

    /// Makes sure that there is something unread; false at the end of the directory.
    fn fill(&mut self, fd: &OwnedFd) -> Result<bool> {
        if self.start < self.end {
            return Ok(true);
        }
        self.buffer.resize(BUFFER_BYTES, 0);
        self.start = 0;
        self.end = getdents64(fd, &mut self.buffer)?;
        Ok(self.end > 0)
    }
}

impl Host {
    pub(crate) fn directory(&self, handle: FileHandle) -> Result<Arc<OpenDirectory>> {
        self.directories.get(handle.0).ok_or(Errno::EBADF)
    }

    pub(crate) fn open_directory(&self, context: &Context<'_>, node: NodeId) -> Result<Opened> {
        let inode = self.nodes.get(node)?;
        let Some(rules) = self.rules.of_opens() else {
            return self.enter_directory(inode);
        };
        if rules.policy.uses().audit {
            context.require_blocking()?;
        }
        let judged = self.judge(rules, &inode, context)?;
        let opened =
            permitted(&judged.decision, Access::Read).and_then(|()| self.enter_directory(inode));
        let told = Told {
            access: "list",
            created: false,
            truncated: false,
            outcome: opened.as_ref().map(|_| None).map_err(|error| *error),
        };
        self.tell(context, &judged, told).inspect_err(|_| {
            if let Ok(opened) = &opened {
                drop(self.directories.remove(opened.handle.0));
            }
        })?;
        opened
    }

    /// Opens a directory and gives it a handle.
    pub(crate) fn enter_directory(&self, inode: Arc<Inode>) -> Result<Opened> {
        let fd = self.open_inode(&inode, libc::O_RDONLY | libc::O_DIRECTORY)?;
        let flags = self.listing_flags(&inode);
        inode.mount().file_opened();
        let mut handle = FileHandle(0);
        self.directories
            .insert_with(|id| {
                handle = FileHandle(id);
                OpenDirectory {
                    inode,
                    fd,
                    stream: Mutex::default(),
                }
            })
            .map_err(|_| Errno::ENFILE)?;
        Ok(Opened {
            handle,
            flags,
            backing: None,
        })
    }

    /// Whether the kernel may keep what is listed: nothing of a time before this policy, and nothing
    /// where what is listed may change with the owner or mode of an entry.
    fn listing_flags(&self, inode: &Inode) -> OpenReplyFlags {
        let rules = self.rules.in_force();
        let hides = rules.as_ref().is_some_and(|rules| rules.policy.uses().hide);
        let keeps = matches!(self.config.cache, CacheMode::Always | CacheMode::Metadata);
        if !keeps || hides {
            return OpenReplyFlags::empty();
        }
        let is_of_now = match rules {
            Some(rules) => inode.same_version_as_cached(rules.generation),
            None => true,
        };
        if is_of_now {
            OpenReplyFlags::CACHE_DIR | OpenReplyFlags::KEEP_CACHE
        } else {
            OpenReplyFlags::CACHE_DIR
        }
    }

    pub(crate) fn readdir(
        &self,
        context: &Context<'_>,
        handle: FileHandle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        let directory = self.directory(handle)?;
        if directory.inode.mount().is_remote() {
            context.require_blocking()?;
        }
        let mut stream = directory.stream.lock();
        let stream = &mut *stream;
        stream.seek(&directory.fd, offset)?;
        loop {
            match stream.fill(&directory.fd) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                // What was listed so far has raised lookup counts: it must be sent.
                Err(error) if sink.is_empty() => return Err(error),
                Err(_) => return Ok(()),
            }
            let mut entries = DirEntries::new(&stream.buffer[stream.start..stream.end]);
            let Some(entry) = entries.next() else {
                stream.start = stream.end;
                continue;
            };
            if !self.list(&directory, &entry, sink) {
                return Ok(());
            }
            stream.position = entry.off as u64;
            stream.start += record_bytes(&stream.buffer[stream.start..stream.end]);
        }
    }

    /// Hands on one entry; false when the sink is full.
    fn list(
        &self,
        directory: &OpenDirectory,
        entry: &DirEntry<'_>,
        sink: &mut DirectorySink<'_>,
    ) -> bool {
        let name = entry.name.to_bytes();
        let next = entry.off as u64;
        if !sink.fits(name.len()) {
            return false;
        }
        let parent = &directory.inode;
        match self.entry_is_hidden(parent, directory.fd.as_fd(), entry.name) {
            Ok(false) => {}
            Ok(true) | Err(_) => return true,
        }
        let ino = parent.mount().client_ino(entry.ino);
        if !sink.is_plus() || name == b"." || name == b".." {
            return sink.entry(ino, next, entry.kind, name);
        }
        match self.look_up_at(&directory.inode, directory.fd.as_fd(), entry.name) {
            Ok((inode, stat)) => {
                let found = self.entry(&inode, &stat);
                let written = sink.entry_plus(&found, next, entry.kind, name);
                if !written {
                    self.nodes.forget(inode.node(), 1);
                }
                written
            }
            // Removed since it was read, or not to be had: the name alone, and a lookup tells.
            Err(_) => sink.entry(ino, next, entry.kind, name),
        }
    }

    pub(crate) fn release_directory(&self, args: &ReleaseArgs) {
        drop(self.directories.remove(args.handle.0));
    }

    pub(crate) fn fsync_directory(
        &self,
        context: &Context<'_>,
        handle: FileHandle,
        data_only: bool,
    ) -> Result<()> {
        let directory = self.directory(handle)?;
        if !directory.inode.mount().is_memory() {
            context.require_blocking()?;
        }
        crate::files::sync(directory.fd(), data_only)
    }
}

/// The length of the first record in what `getdents64` filled (`d_reclen`).
fn record_bytes(records: &[u8]) -> usize {
    match records {
        [
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            low,
            high,
            ..,
        ] => usize::from(u16::from_ne_bytes([*low, *high]))
            .max(1)
            .min(records.len()),
        _ => records.len(),
    }
}

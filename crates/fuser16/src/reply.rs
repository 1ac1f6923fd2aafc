//! The replies of 0.16: those of 0.18, with plain numbers.

use crate::{BackingId, FileAttr, FileType};
use libc::c_int;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;
use thrufs_fuser as new;
use thrufs_fuser::{Errno, FileHandle, FopenFlags, Generation, INodeNo, PollEvents};

macro_rules! replies {
    ($($name:ident)*) => {$(
        #[doc = concat!("See `fuser::", stringify!($name), "`. Dropped without an answer, the request fails with EIO.")]
        #[derive(Debug)]
        pub struct $name(pub(crate) new::$name);

        impl $name {
            /// The request fails.
            pub fn error(self, errno: c_int) {
                self.0.error(Errno::from_i32(errno));
            }
        }
    )*};
}

replies! {
    ReplyAttr ReplyBmap ReplyCreate ReplyData ReplyDirectory ReplyDirectoryPlus ReplyEmpty ReplyEntry ReplyIoctl
    ReplyLock ReplyLseek ReplyOpen ReplyPoll ReplyStatfs ReplyWrite ReplyXattr
}

/// Answers that need no conversion.
macro_rules! answers {
    ($($(#[$doc:meta])* $type:ident.$name:ident($($argument:ident: $from:ty),*);)*) => {$(
        impl $type {
            $(#[$doc])*
            #[allow(clippy::too_many_arguments)]
            pub fn $name(self, $($argument: $from),*) {
                self.0.$name($($argument),*);
            }
        }
    )*};
}

answers! {
    /// With a block of the device.
    ReplyBmap.bmap(block: u64);
    /// With these bytes.
    ReplyData.data(data: &[u8]);
    /// Done.
    ReplyEmpty.ok();
    /// With the entries that were added.
    ReplyDirectory.ok();
    /// With the entries that were added.
    ReplyDirectoryPlus.ok();
    /// With the result and the output.
    ReplyIoctl.ioctl(result: i32, data: &[u8]);
    /// With the lock that is in the way, or `F_UNLCK`.
    ReplyLock.locked(start: u64, end: u64, typ: i32, pid: u32);
    /// With an offset.
    ReplyLseek.offset(offset: i64);
    /// With these figures.
    ReplyStatfs.statfs(
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32
    );
    /// So many bytes.
    ReplyWrite.written(size: u32);
    /// With a size, where that was asked for.
    ReplyXattr.size(size: u32);
    /// With a value.
    ReplyXattr.data(data: &[u8]);
}

impl ReplyAttr {
    /// With attributes.
    pub fn attr(self, ttl: &Duration, attr: &FileAttr) {
        self.0.attr(ttl, &attr.into());
    }
}

impl ReplyEntry {
    /// With an inode.
    pub fn entry(self, ttl: &Duration, attr: &FileAttr, generation: u64) {
        self.0.entry(ttl, &attr.into(), Generation(generation));
    }
}

impl ReplyPoll {
    /// With the events that are ready.
    pub fn poll(self, revents: u32) {
        self.0.poll(PollEvents::from_bits_retain(revents));
    }
}

impl ReplyOpen {
    /// Opened.
    pub fn opened(self, fh: u64, flags: u32) {
        self.0
            .opened(FileHandle(fh), FopenFlags::from_bits_retain(flags));
    }

    /// Opened; the kernel reads and writes the registered file itself.
    pub fn opened_passthrough(self, fh: u64, flags: u32, backing_id: &BackingId) {
        let flags = FopenFlags::from_bits_retain(flags);
        self.0.opened_passthrough(FileHandle(fh), flags, backing_id);
    }

    /// Registers a file for passthrough.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open_backing(&self, fd: impl AsFd) -> io::Result<BackingId> {
        self.0.open_backing(fd)
    }
}

impl ReplyCreate {
    /// Made and opened.
    pub fn created(self, ttl: &Duration, attr: &FileAttr, generation: u64, fh: u64, flags: u32) {
        let flags = FopenFlags::from_bits_retain(flags);
        let generation = Generation(generation);
        self.0
            .created(ttl, &attr.into(), generation, FileHandle(fh), flags);
    }
}

impl ReplyDirectory {
    /// Adds an entry, after which a listing goes on at `offset`. True when it does not fit.
    #[must_use]
    pub fn add<T: AsRef<OsStr>>(&mut self, ino: u64, offset: i64, kind: FileType, name: T) -> bool {
        self.0.add(INodeNo(ino), offset as u64, kind, name)
    }
}

impl ReplyDirectoryPlus {
    /// Adds an entry, after which a listing goes on at `offset`. True when it does not fit.
    pub fn add<T: AsRef<OsStr>>(
        &mut self,
        ino: u64,
        offset: i64,
        name: T,
        ttl: &Duration,
        attr: &FileAttr,
        generation: u64,
    ) -> bool {
        let (ino, generation) = (INodeNo(ino), Generation(generation));
        self.0
            .add(ino, offset as u64, name, ttl, &attr.into(), generation)
    }
}

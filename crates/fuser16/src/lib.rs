#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[rustfmt::skip]
mod filesystem;
mod reply;
mod session;

pub use filesystem::Filesystem;
pub use reply::{
    ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr,
};
pub use session::{BackgroundSession, MountOption, Session, mount2, spawn_mount2};
pub use thrufs_fuser::{BackingId, FileType, SessionACL, SessionUnmounter, TimeOrNow};

use std::ffi::OsStr;
use std::io;
use std::time::{Duration, SystemTime};
use thrufs_fuser as new;
use thrufs_fuser::{INodeNo, InitFlags};

/// Who asks.
#[derive(Debug)]
pub struct Request<'a>(pub(crate) &'a new::Request);

impl Request<'_> {
    /// The request's number.
    pub fn unique(&self) -> u64 {
        self.0.unique().0
    }

    /// The caller's user.
    pub fn uid(&self) -> u32 {
        self.0.uid()
    }

    /// The caller's group.
    pub fn gid(&self) -> u32 {
        self.0.gid()
    }

    /// The caller's thread.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }
}

/// Lookups of an inode that the kernel gives back.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
pub struct fuse_forget_one {
    /// The inode.
    pub nodeid: u64,
    /// How many.
    pub nlookup: u64,
}

/// The attributes of an inode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serializable", derive(serde::Serialize, serde::Deserialize))]
pub struct FileAttr {
    /// The inode.
    pub ino: u64,
    /// In bytes.
    pub size: u64,
    /// Allocated, in units of 512 bytes.
    pub blocks: u64,
    /// Time of last access.
    pub atime: SystemTime,
    /// Time of last modification.
    pub mtime: SystemTime,
    /// Time of last status change.
    pub ctime: SystemTime,
    /// Time of birth; not used on Linux.
    pub crtime: SystemTime,
    /// The kind.
    pub kind: FileType,
    /// Permission and set-id bits.
    pub perm: u16,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, of a device node.
    pub rdev: u32,
    /// The block size that `stat(2)` shows.
    pub blksize: u32,
    /// Of `chflags(2)`; not used on Linux.
    pub flags: u32,
}

impl From<&FileAttr> for new::FileAttr {
    fn from(attr: &FileAttr) -> new::FileAttr {
        let FileAttr {
            ino,
            size,
            blocks,
            atime,
            mtime,
            ctime,
            crtime,
            kind,
            perm,
            ..
        } = *attr;
        let FileAttr {
            nlink,
            uid,
            gid,
            rdev,
            blksize,
            flags,
            ..
        } = *attr;
        let ino = INodeNo(ino);
        new::FileAttr {
            ino,
            size,
            blocks,
            atime,
            mtime,
            ctime,
            crtime,
            kind,
            perm,
            nlink,
            uid,
            gid,
            rdev,
            blksize,
            flags,
        }
    }
}

/// What the kernel offers, and what the file system asks for.
#[derive(Debug)]
pub struct KernelConfig<'a>(pub(crate) &'a mut new::KernelConfig);

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {
        impl KernelConfig<'_> {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// The nearest value that is accepted.
            pub fn $name(&mut self, value: $type) -> Result<$type, $type> {
                self.0.$name(value)
            }
        )*}
    };
}

settings! {
    /// How deep file systems may be stacked beneath passthrough.
    set_max_stack_depth: u32;
    /// Granularity of time stamps.
    set_time_granularity: Duration;
    /// Most bytes of one WRITE.
    set_max_write: u32;
    /// Most bytes that the kernel reads ahead.
    set_max_readahead: u32;
    /// Most requests in the background.
    set_max_background: u16;
    /// Has no effect.
    set_congestion_threshold: u16;
}

impl KernelConfig<'_> {
    /// Asks for capabilities, by [`consts`].
    ///
    /// # Errors
    /// Those of them that are not offered.
    pub fn add_capabilities(&mut self, capabilities: u64) -> Result<(), u64> {
        let asked = self
            .0
            .add_capabilities(InitFlags::from_bits_retain(capabilities));
        asked.map_err(|missing| missing.bits())
    }
}

/// Wakes those who wait in a `poll(2)`.
#[derive(Clone, Debug)]
pub struct PollHandle(pub(crate) new::PollNotifier);

impl PollHandle {
    /// Wakes them.
    ///
    /// # Errors
    /// As all methods of [`Notifier`].
    pub fn notify(self) -> io::Result<()> {
        self.0.notify()
    }
}

impl From<PollHandle> for u64 {
    fn from(handle: PollHandle) -> u64 {
        handle.0.handle().0
    }
}

/// Sends notifications, see [`thrufs_fuser::Notifier`].
#[derive(Debug, Clone)]
pub struct Notifier(pub(crate) new::Notifier);

macro_rules! notifications {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty => $to:expr),*);)*) => {
        impl Notifier {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// EAGAIN when too many are queued, ENOTCONN once the session has ended.
            pub fn $name(&self, $($argument: $type),*) -> io::Result<()> {
                self.0.$name($($to),*)
            }
        )*}
    };
}

notifications! {
    /// Wakes those who wait in a `poll(2)`.
    poll(kh: u64 => new::PollHandle(kh));
    /// A name has another inode now, or none.
    inval_entry(parent: u64 => INodeNo(parent), name: &OsStr => name);
    /// Attributes have changed, and data.
    inval_inode(ino: u64 => INodeNo(ino), offset: i64 => offset, len: i64 => len);
    /// Puts data into the page cache.
    store(ino: u64 => INodeNo(ino), offset: u64 => offset, data: &[u8] => data);
    /// A name was removed.
    delete(parent: u64 => INodeNo(parent), child: u64 => INodeNo(child), name: &OsStr => name);
}

/// Constants of the kernel's header.
#[allow(missing_docs)]
pub mod consts {
    use thrufs_fuser::{FopenFlags, InitFlags, IoctlFlags, PollFlags, WriteFlags};

    pub use thrufs_fuser::consts::*;

    macro_rules! bits {
        ($($type:ident: $bits:ty { $($name:ident)* })*) => {$($(
            pub const $name: $bits = $type::$name.bits();
        )*)*};
    }

    bits! {
        FopenFlags: u32 {
            FOPEN_DIRECT_IO FOPEN_KEEP_CACHE FOPEN_NONSEEKABLE FOPEN_CACHE_DIR FOPEN_STREAM FOPEN_PASSTHROUGH
        }
        InitFlags: u64 {
            FUSE_ASYNC_READ FUSE_POSIX_LOCKS FUSE_FILE_OPS FUSE_ATOMIC_O_TRUNC FUSE_EXPORT_SUPPORT FUSE_BIG_WRITES
            FUSE_DONT_MASK FUSE_SPLICE_WRITE FUSE_SPLICE_MOVE FUSE_SPLICE_READ FUSE_FLOCK_LOCKS FUSE_HAS_IOCTL_DIR
            FUSE_AUTO_INVAL_DATA FUSE_DO_READDIRPLUS FUSE_READDIRPLUS_AUTO FUSE_ASYNC_DIO FUSE_WRITEBACK_CACHE
            FUSE_NO_OPEN_SUPPORT FUSE_PARALLEL_DIROPS FUSE_HANDLE_KILLPRIV FUSE_POSIX_ACL FUSE_ABORT_ERROR
            FUSE_MAX_PAGES FUSE_CACHE_SYMLINKS FUSE_NO_OPENDIR_SUPPORT FUSE_EXPLICIT_INVAL_DATA FUSE_INIT_EXT
            FUSE_INIT_RESERVED FUSE_PASSTHROUGH
        }
        IoctlFlags: u32 {
            FUSE_IOCTL_COMPAT FUSE_IOCTL_UNRESTRICTED FUSE_IOCTL_RETRY FUSE_IOCTL_32BIT FUSE_IOCTL_DIR
            FUSE_IOCTL_COMPAT_X32
        }
        PollFlags: u32 { FUSE_POLL_SCHEDULE_NOTIFY }
        WriteFlags: u32 { FUSE_WRITE_CACHE FUSE_WRITE_LOCKOWNER }
    }
    pub const FUSE_WRITE_KILL_PRIV: u32 = WriteFlags::FUSE_WRITE_KILL_SUIDGID.bits();
}

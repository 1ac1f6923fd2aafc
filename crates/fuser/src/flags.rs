//! Flags of the kernel's protocol and of system calls, with the names and values of their headers.
#![allow(missing_docs)]

use bitflags::bitflags;
use std::fmt;

macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident: $bits:ty { $($flag:ident = $value:expr;)* })*) => {$(
        bitflags! {
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            pub struct $name: $bits {
                $(const $flag = $value;)*
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.bits(), formatter)
            }
        }
    )*};
}

flags! {
    /// What `access(2)` asks.
    AccessFlags: i32 {
        F_OK = libc::F_OK;
        R_OK = libc::R_OK;
        W_OK = libc::W_OK;
        X_OK = libc::X_OK;
    }
    /// Of `chflags(2)`; none on Linux.
    BsdFileFlags: u32 {}
    /// Of `copy_file_range(2)`; none are defined.
    CopyFileRangeFlags: u64 {}
    /// How the kernel treats an open file.
    FopenFlags: u32 {
        FOPEN_DIRECT_IO = 1 << 0;
        FOPEN_KEEP_CACHE = 1 << 1;
        FOPEN_NONSEEKABLE = 1 << 2;
        FOPEN_CACHE_DIR = 1 << 3;
        FOPEN_STREAM = 1 << 4;
        FOPEN_NOFLUSH = 1 << 5;
        FOPEN_PARALLEL_DIRECT_WRITES = 1 << 6;
        FOPEN_PASSTHROUGH = 1 << 7;
    }
    /// Capabilities that INIT negotiates.
    InitFlags: u64 {
        FUSE_ASYNC_READ = 1 << 0;
        FUSE_POSIX_LOCKS = 1 << 1;
        FUSE_FILE_OPS = 1 << 2;
        FUSE_ATOMIC_O_TRUNC = 1 << 3;
        FUSE_EXPORT_SUPPORT = 1 << 4;
        FUSE_BIG_WRITES = 1 << 5;
        FUSE_DONT_MASK = 1 << 6;
        FUSE_SPLICE_WRITE = 1 << 7;
        FUSE_SPLICE_MOVE = 1 << 8;
        FUSE_SPLICE_READ = 1 << 9;
        FUSE_FLOCK_LOCKS = 1 << 10;
        FUSE_HAS_IOCTL_DIR = 1 << 11;
        FUSE_AUTO_INVAL_DATA = 1 << 12;
        FUSE_DO_READDIRPLUS = 1 << 13;
        FUSE_READDIRPLUS_AUTO = 1 << 14;
        FUSE_ASYNC_DIO = 1 << 15;
        FUSE_WRITEBACK_CACHE = 1 << 16;
        FUSE_NO_OPEN_SUPPORT = 1 << 17;
        FUSE_PARALLEL_DIROPS = 1 << 18;
        FUSE_HANDLE_KILLPRIV = 1 << 19;
        FUSE_POSIX_ACL = 1 << 20;
        FUSE_ABORT_ERROR = 1 << 21;
        FUSE_MAX_PAGES = 1 << 22;
        FUSE_CACHE_SYMLINKS = 1 << 23;
        FUSE_NO_OPENDIR_SUPPORT = 1 << 24;
        FUSE_EXPLICIT_INVAL_DATA = 1 << 25;
        FUSE_MAP_ALIGNMENT = 1 << 26;
        FUSE_SUBMOUNTS = 1 << 27;
        FUSE_HANDLE_KILLPRIV_V2 = 1 << 28;
        FUSE_SETXATTR_EXT = 1 << 29;
        FUSE_INIT_EXT = 1 << 30;
        FUSE_INIT_RESERVED = 1 << 31;
        FUSE_SECURITY_CTX = 1 << 32;
        FUSE_HAS_INODE_DAX = 1 << 33;
        FUSE_CREATE_SUPP_GROUP = 1 << 34;
        FUSE_HAS_EXPIRE_ONLY = 1 << 35;
        FUSE_DIRECT_IO_ALLOW_MMAP = 1 << 36;
        FUSE_PASSTHROUGH = 1 << 37;
        FUSE_NO_EXPORT_SUPPORT = 1 << 38;
        FUSE_HAS_RESEND = 1 << 39;
        FUSE_ALLOW_IDMAP = 1 << 40;
        FUSE_OVER_IO_URING = 1 << 41;
        FUSE_REQUEST_TIMEOUT = 1 << 42;
    }
    /// Of an ioctl. Always empty here: the library serves restricted ones of files alone.
    IoctlFlags: u32 {
        FUSE_IOCTL_COMPAT = 1 << 0;
        FUSE_IOCTL_UNRESTRICTED = 1 << 1;
        FUSE_IOCTL_RETRY = 1 << 2;
        FUSE_IOCTL_32BIT = 1 << 3;
        FUSE_IOCTL_DIR = 1 << 4;
        FUSE_IOCTL_COMPAT_X32 = 1 << 5;
    }
    /// Events of `poll(2)`.
    PollEvents: u32 {
        POLLIN = libc::POLLIN as u32;
        POLLPRI = libc::POLLPRI as u32;
        POLLOUT = libc::POLLOUT as u32;
        POLLERR = libc::POLLERR as u32;
        POLLHUP = libc::POLLHUP as u32;
        POLLNVAL = libc::POLLNVAL as u32;
        POLLRDNORM = libc::POLLRDNORM as u32;
        POLLRDBAND = libc::POLLRDBAND as u32;
        POLLWRNORM = libc::POLLWRNORM as u32;
        POLLWRBAND = libc::POLLWRBAND as u32;
    }
    /// Of a POLL request.
    PollFlags: u32 {
        FUSE_POLL_SCHEDULE_NOTIFY = 1 << 0;
    }
    /// Of `renameat2(2)`.
    RenameFlags: u32 {
        RENAME_NOREPLACE = libc::RENAME_NOREPLACE;
        RENAME_EXCHANGE = libc::RENAME_EXCHANGE;
        RENAME_WHITEOUT = libc::RENAME_WHITEOUT;
    }
    /// Of a WRITE request.
    WriteFlags: u32 {
        FUSE_WRITE_CACHE = 1 << 0;
        FUSE_WRITE_LOCKOWNER = 1 << 1;
        FUSE_WRITE_KILL_SUIDGID = 1 << 2;
    }
}

/// Constants of the kernel's header without a type of their own.
pub mod consts {
    pub const FUSE_LK_FLOCK: u32 = 1 << 0;
    pub const FUSE_IOCTL_MAX_IOV: u32 = 256;
    pub const FUSE_MIN_READ_BUFFER: usize = 8192;
}

/// How a file is opened.
#[allow(non_camel_case_types)]
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
#[repr(i32)]
pub enum OpenAccMode {
    O_RDONLY = libc::O_RDONLY,
    O_WRONLY = libc::O_WRONLY,
    O_RDWR = libc::O_RDWR,
}

/// Flags of `open(2)`.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub struct OpenFlags(pub i32);

impl OpenFlags {
    /// Read, write, or both.
    pub fn acc_mode(self) -> OpenAccMode {
        match self.0 & libc::O_ACCMODE {
            libc::O_WRONLY => OpenAccMode::O_WRONLY,
            libc::O_RDWR => OpenAccMode::O_RDWR,
            _ => OpenAccMode::O_RDONLY,
        }
    }
}

impl fmt::LowerHex for OpenFlags {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, formatter)
    }
}

impl fmt::UpperHex for OpenFlags {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::UpperHex::fmt(&self.0, formatter)
    }
}

//! The flags of the wire. Unknown bits are kept when flags are decoded (`from_bits_retain`).

use bitflags::bitflags;

bitflags! {
    /// Capabilities, agreed on at INIT. Bits from 32 on travel in `flags2`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InitFlags: u64 {
        /// `FUSE_ASYNC_READ`.
        const ASYNC_READ = 1 << 0;
        /// `FUSE_POSIX_LOCKS`.
        const POSIX_LOCKS = 1 << 1;
        /// `FUSE_FILE_OPS`.
        const FILE_OPS = 1 << 2;
        /// `FUSE_ATOMIC_O_TRUNC`.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// `FUSE_EXPORT_SUPPORT`.
        const EXPORT_SUPPORT = 1 << 4;
        /// `FUSE_BIG_WRITES`.
        const BIG_WRITES = 1 << 5;
        /// `FUSE_DONT_MASK`.
        const DONT_MASK = 1 << 6;
        /// `FUSE_SPLICE_WRITE`.
        const SPLICE_WRITE = 1 << 7;
        /// `FUSE_SPLICE_MOVE`.
        const SPLICE_MOVE = 1 << 8;
        /// `FUSE_SPLICE_READ`.
        const SPLICE_READ = 1 << 9;
        /// `FUSE_FLOCK_LOCKS`.
        const FLOCK_LOCKS = 1 << 10;
        /// `FUSE_HAS_IOCTL_DIR`.
        const HAS_IOCTL_DIR = 1 << 11;
        /// `FUSE_AUTO_INVAL_DATA`.
        const AUTO_INVAL_DATA = 1 << 12;
        /// `FUSE_DO_READDIRPLUS`.
        const DO_READDIRPLUS = 1 << 13;
        /// `FUSE_READDIRPLUS_AUTO`.
        const READDIRPLUS_AUTO = 1 << 14;
        /// `FUSE_ASYNC_DIO`.
        const ASYNC_DIO = 1 << 15;
        /// `FUSE_WRITEBACK_CACHE`.
        const WRITEBACK_CACHE = 1 << 16;
        /// `FUSE_NO_OPEN_SUPPORT`.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// `FUSE_PARALLEL_DIROPS`.
        const PARALLEL_DIROPS = 1 << 18;
        /// `FUSE_HANDLE_KILLPRIV`.
        const HANDLE_KILLPRIV = 1 << 19;
        /// `FUSE_POSIX_ACL`.
        const POSIX_ACL = 1 << 20;
        /// `FUSE_ABORT_ERROR`.
        const ABORT_ERROR = 1 << 21;
        /// `FUSE_MAX_PAGES`.
        const MAX_PAGES = 1 << 22;
        /// `FUSE_CACHE_SYMLINKS`.
        const CACHE_SYMLINKS = 1 << 23;
        /// `FUSE_NO_OPENDIR_SUPPORT`.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// `FUSE_EXPLICIT_INVAL_DATA`.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// `FUSE_MAP_ALIGNMENT`.
        const MAP_ALIGNMENT = 1 << 26;
        /// `FUSE_SUBMOUNTS`.
        const SUBMOUNTS = 1 << 27;
        /// `FUSE_HANDLE_KILLPRIV_V2`.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// `FUSE_SETXATTR_EXT`.
        const SETXATTR_EXT = 1 << 29;
        /// `FUSE_INIT_EXT`.
        const INIT_EXT = 1 << 30;
        /// `FUSE_INIT_RESERVED`.
        const RESERVED = 1 << 31;
        /// `FUSE_SECURITY_CTX`.
        const SECURITY_CTX = 1 << 32;
        /// `FUSE_HAS_INODE_DAX`.
        const HAS_INODE_DAX = 1 << 33;
        /// `FUSE_CREATE_SUPP_GROUP`.
        const CREATE_SUPP_GROUP = 1 << 34;
        /// `FUSE_HAS_EXPIRE_ONLY`.
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// `FUSE_DIRECT_IO_ALLOW_MMAP`.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// `FUSE_PASSTHROUGH`.
        const PASSTHROUGH = 1 << 37;
        /// `FUSE_NO_EXPORT_SUPPORT`.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// `FUSE_HAS_RESEND`.
        const HAS_RESEND = 1 << 39;
        /// `FUSE_ALLOW_IDMAP`.
        const ALLOW_IDMAP = 1 << 40;
        /// `FUSE_OVER_IO_URING`.
        const OVER_IO_URING = 1 << 41;
        /// `FUSE_REQUEST_TIMEOUT`.
        const REQUEST_TIMEOUT = 1 << 42;
    }

    /// How the kernel is to treat an open file (`FOPEN_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OpenReplyFlags: u32 {
        /// `FOPEN_DIRECT_IO`.
        const DIRECT_IO = 1 << 0;
        /// `FOPEN_KEEP_CACHE`.
        const KEEP_CACHE = 1 << 1;
        /// `FOPEN_NONSEEKABLE`.
        const NONSEEKABLE = 1 << 2;
        /// `FOPEN_CACHE_DIR`.
        const CACHE_DIR = 1 << 3;
        /// `FOPEN_STREAM`.
        const STREAM = 1 << 4;
        /// `FOPEN_NOFLUSH`.
        const NOFLUSH = 1 << 5;
        /// `FOPEN_PARALLEL_DIRECT_WRITES`.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
        /// `FOPEN_PASSTHROUGH`.
        const PASSTHROUGH = 1 << 7;
    }

    /// Which fields of a SETATTR are meant (`FATTR_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SetattrValid: u32 {
        /// `FATTR_MODE`.
        const MODE = 1 << 0;
        /// `FATTR_UID`.
        const UID = 1 << 1;
        /// `FATTR_GID`.
        const GID = 1 << 2;
        /// `FATTR_SIZE`.
        const SIZE = 1 << 3;
        /// `FATTR_ATIME`.
        const ATIME = 1 << 4;
        /// `FATTR_MTIME`.
        const MTIME = 1 << 5;
        /// `FATTR_FH`.
        const FH = 1 << 6;
        /// `FATTR_ATIME_NOW`.
        const ATIME_NOW = 1 << 7;
        /// `FATTR_MTIME_NOW`.
        const MTIME_NOW = 1 << 8;
        /// `FATTR_LOCKOWNER`.
        const LOCKOWNER = 1 << 9;
        /// `FATTR_CTIME`.
        const CTIME = 1 << 10;
        /// `FATTR_KILL_SUIDGID`.
        const KILL_SUIDGID = 1 << 11;
    }

    /// Flags of RELEASE.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ReleaseFlags: u32 {
        /// `FUSE_RELEASE_FLUSH`.
        const FLUSH = 1 << 0;
        /// `FUSE_RELEASE_FLOCK_UNLOCK`.
        const FLOCK_UNLOCK = 1 << 1;
    }

    /// Flags of GETATTR and STATX.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct GetattrFlags: u32 {
        /// `FUSE_GETATTR_FH`.
        const FH = 1 << 0;
    }

    /// Flags of lock requests.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct LkFlags: u32 {
        /// `FUSE_LK_FLOCK`.
        const FLOCK = 1 << 0;
    }

    /// Flags of WRITE.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WriteFlags: u32 {
        /// `FUSE_WRITE_CACHE`.
        const CACHE = 1 << 0;
        /// `FUSE_WRITE_LOCKOWNER`.
        const LOCKOWNER = 1 << 1;
        /// `FUSE_WRITE_KILL_SUIDGID`.
        const KILL_SUIDGID = 1 << 2;
    }

    /// Flags of READ.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ReadFlags: u32 {
        /// `FUSE_READ_LOCKOWNER`.
        const LOCKOWNER = 1 << 1;
    }

    /// Flags of IOCTL.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct IoctlFlags: u32 {
        /// `FUSE_IOCTL_COMPAT`.
        const COMPAT = 1 << 0;
        /// `FUSE_IOCTL_UNRESTRICTED`.
        const UNRESTRICTED = 1 << 1;
        /// `FUSE_IOCTL_RETRY`.
        const RETRY = 1 << 2;
        /// `FUSE_IOCTL_32BIT`.
        const IN_32BIT = 1 << 3;
        /// `FUSE_IOCTL_DIR`.
        const DIR = 1 << 4;
        /// `FUSE_IOCTL_COMPAT_X32`.
        const COMPAT_X32 = 1 << 5;
    }

    /// Flags of POLL.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PollFlags: u32 {
        /// `FUSE_POLL_SCHEDULE_NOTIFY`.
        const SCHEDULE_NOTIFY = 1 << 0;
    }

    /// Flags of FSYNC and FSYNCDIR.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FsyncFlags: u32 {
        /// `FUSE_FSYNC_FDATASYNC`.
        const FDATASYNC = 1 << 0;
    }

    /// Flags within attributes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AttrFlags: u32 {
        /// `FUSE_ATTR_SUBMOUNT`.
        const SUBMOUNT = 1 << 0;
        /// `FUSE_ATTR_DAX`.
        const DAX = 1 << 1;
    }

    /// Flags of OPEN and CREATE besides those of `open(2)`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OpenInFlags: u32 {
        /// `FUSE_OPEN_KILL_SUIDGID`.
        const KILL_SUIDGID = 1 << 0;
    }

    /// Flags of SETXATTR besides those of `setxattr(2)`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct SetxattrFlags: u32 {
        /// `FUSE_SETXATTR_ACL_KILL_SGID`.
        const ACL_KILL_SGID = 1 << 0;
    }

    /// Flags of the notification INVAL_ENTRY.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ExpireFlags: u32 {
        /// `FUSE_EXPIRE_ONLY`.
        const ONLY = 1 << 0;
    }
}

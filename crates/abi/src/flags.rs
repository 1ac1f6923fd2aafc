//! The flags of the wire. Unknown bits are kept when flags are decoded (`from_bits_retain`).

use bitflags::bitflags;

/// Flags by their names in the header without a common prefix, and the numbers of their bits.
macro_rules! flags {
    (@name $flag:ident) => { stringify!($flag) };
    (@name $flag:ident $c_name:literal) => { $c_name };
    ($(#[doc = $doc:literal] $name:ident: $bits:ty, $prefix:literal {
        $($flag:ident $(is $c_name:literal)? = $bit:literal,)*
    })*) => {
        bitflags! {
            $(
                #[doc = $doc]
                #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
                pub struct $name: $bits {
                    $(
                        #[doc = concat!("`", $prefix, flags!(@name $flag $($c_name)?), "`.")]
                        const $flag = 1 << $bit;
                    )*
                }
            )*
        }
    };
}

flags! {
    /// Capabilities, negotiated by INIT. Bits from 32 on are in `flags2`.
    InitFlags: u64, "FUSE_" {
        ASYNC_READ = 0,
        POSIX_LOCKS = 1,
        FILE_OPS = 2,
        ATOMIC_O_TRUNC = 3,
        EXPORT_SUPPORT = 4,
        BIG_WRITES = 5,
        DONT_MASK = 6,
        SPLICE_WRITE = 7,
        SPLICE_MOVE = 8,
        SPLICE_READ = 9,
        FLOCK_LOCKS = 10,
        HAS_IOCTL_DIR = 11,
        AUTO_INVAL_DATA = 12,
        DO_READDIRPLUS = 13,
        READDIRPLUS_AUTO = 14,
        ASYNC_DIO = 15,
        WRITEBACK_CACHE = 16,
        NO_OPEN_SUPPORT = 17,
        PARALLEL_DIROPS = 18,
        HANDLE_KILLPRIV = 19,
        POSIX_ACL = 20,
        ABORT_ERROR = 21,
        MAX_PAGES = 22,
        CACHE_SYMLINKS = 23,
        NO_OPENDIR_SUPPORT = 24,
        EXPLICIT_INVAL_DATA = 25,
        MAP_ALIGNMENT = 26,
        SUBMOUNTS = 27,
        HANDLE_KILLPRIV_V2 = 28,
        SETXATTR_EXT = 29,
        INIT_EXT = 30,
        RESERVED is "INIT_RESERVED" = 31,
        SECURITY_CTX = 32,
        HAS_INODE_DAX = 33,
        CREATE_SUPP_GROUP = 34,
        HAS_EXPIRE_ONLY = 35,
        DIRECT_IO_ALLOW_MMAP = 36,
        PASSTHROUGH = 37,
        NO_EXPORT_SUPPORT = 38,
        HAS_RESEND = 39,
        ALLOW_IDMAP = 40,
        OVER_IO_URING = 41,
        REQUEST_TIMEOUT = 42,
    }

    /// How the kernel treats an open file (`FOPEN_*`).
    OpenReplyFlags: u32, "FOPEN_" {
        DIRECT_IO = 0,
        KEEP_CACHE = 1,
        NONSEEKABLE = 2,
        CACHE_DIR = 3,
        STREAM = 4,
        NOFLUSH = 5,
        PARALLEL_DIRECT_WRITES = 6,
        PASSTHROUGH = 7,
    }

    /// The fields of a SETATTR to set (`FATTR_*`).
    SetattrValid: u32, "FATTR_" {
        MODE = 0,
        UID = 1,
        GID = 2,
        SIZE = 3,
        ATIME = 4,
        MTIME = 5,
        FH = 6,
        ATIME_NOW = 7,
        MTIME_NOW = 8,
        LOCKOWNER = 9,
        CTIME = 10,
        KILL_SUIDGID = 11,
    }

    /// Flags of RELEASE.
    ReleaseFlags: u32, "FUSE_RELEASE_" {
        FLUSH = 0,
        FLOCK_UNLOCK = 1,
    }

    /// Flags of GETATTR and STATX.
    GetattrFlags: u32, "FUSE_GETATTR_" {
        FH = 0,
    }

    /// Flags of lock requests.
    LkFlags: u32, "FUSE_LK_" {
        FLOCK = 0,
    }

    /// Flags of WRITE.
    WriteFlags: u32, "FUSE_WRITE_" {
        CACHE = 0,
        LOCKOWNER = 1,
        KILL_SUIDGID = 2,
    }

    /// Flags of READ.
    ReadFlags: u32, "FUSE_READ_" {
        LOCKOWNER = 1,
    }

    /// Flags of IOCTL.
    IoctlFlags: u32, "FUSE_IOCTL_" {
        COMPAT = 0,
        UNRESTRICTED = 1,
        RETRY = 2,
        IN_32BIT is "32BIT" = 3,
        DIR = 4,
        COMPAT_X32 = 5,
    }

    /// Flags of POLL.
    PollFlags: u32, "FUSE_POLL_" {
        SCHEDULE_NOTIFY = 0,
    }

    /// Flags of FSYNC and FSYNCDIR.
    FsyncFlags: u32, "FUSE_FSYNC_" {
        FDATASYNC = 0,
    }

    /// Flags within attributes.
    AttrFlags: u32, "FUSE_ATTR_" {
        SUBMOUNT = 0,
        DAX = 1,
    }

    /// Flags of OPEN and CREATE besides those of `open(2)`.
    OpenInFlags: u32, "FUSE_OPEN_" {
        KILL_SUIDGID = 0,
    }

    /// Flags of SETXATTR besides those of `setxattr(2)`.
    SetxattrFlags: u32, "FUSE_SETXATTR_" {
        ACL_KILL_SGID = 0,
    }
}

//! Arguments and results of [`FileSystem`](crate::FileSystem)'s methods: entries, attributes, open files.

use std::time::Duration;
use thrufs_abi::layout::{Attr, Statx};
use thrufs_abi::{BackingId, FileHandle, Generation, LockOwner, NodeId, OpenReplyFlags};

/// The reply to LOOKUP and to every creation: a node, and how long the kernel may cache it.
///
/// Each entry that reaches the kernel raises the node's lookup count by one; FORGET lowers it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The node; [`NodeId::NONE`](Entry::negative) together with a timeout says that the name does not
    /// exist, which the kernel then caches.
    pub node: NodeId,
    /// With `node`, never used twice on one connection (NFS file handles rely on it).
    pub generation: Generation,
    /// The node's attributes.
    pub attr: Attr,
    /// How long the name is valid.
    pub entry_timeout: Duration,
    /// How long the attributes are valid.
    pub attr_timeout: Duration,
}

impl Entry {
    /// The node whose number is `attr.ino`, in its first generation; name and attributes are valid for `valid`.
    pub fn new(attr: Attr, valid: Duration) -> Entry {
        Entry {
            node: NodeId(attr.ino),
            generation: Generation(0),
            attr,
            entry_timeout: valid,
            attr_timeout: valid,
        }
    }

    /// A negative entry: the name does not exist, valid for `timeout`.
    pub fn negative(timeout: Duration) -> Entry {
        Entry {
            node: NodeId(0),
            generation: Generation(0),
            attr: Attr::default(),
            entry_timeout: timeout,
            attr_timeout: Duration::ZERO,
        }
    }
}

/// Attributes, and how long they are valid.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// The attributes as the wire has them.
    pub attr: Attr,
    /// How long they are valid.
    pub timeout: Duration,
}

/// Extended attributes of an inode (`statx(2)`), and how long they are valid.
#[derive(Clone, Copy, Debug)]
pub struct ExtendedAttributes {
    /// The attributes as the wire has them; `mask` says which are set.
    pub statx: Statx,
    /// How long they are valid.
    pub timeout: Duration,
}

/// A point in time, as the wire has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// Seconds since the epoch; negative before it.
    pub seconds: i64,
    /// Nanoseconds after that, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's clock, at the moment of setting.
    Now,
    /// This time.
    At(Timestamp),
}

/// What SETATTR asks for. Fields that are `None` stay as they are.
///
/// All fields empty means "drop set-user-id, set-group-id and file capabilities": with KILLPRIV_V2 the
/// kernel sends that before a write that it will not report. `chown(2)` with neither owner nor group
/// sends the same for any caller: the server has to refuse it to callers that may not change the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// The open file that was used (`ftruncate(2)`).
    pub handle: Option<FileHandle>,
    /// Permission bits and set-id bits; the file type bits are to be ignored.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Time of last access.
    pub atime: Option<SetTime>,
    /// Time of last modification.
    pub mtime: Option<SetTime>,
    /// Time of last status change; only sent when the kernel keeps times itself (writeback cache).
    pub ctime: Option<Timestamp>,
    /// Set-user-id, set-group-id (if group-executable) and file capabilities must be dropped: the caller
    /// lacks CAP_FSETID.
    pub kill_suidgid: bool,
    /// The lock owner of the caller, for mandatory locks.
    pub lock_owner: Option<LockOwner>,
}

/// An opened file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opened {
    /// Repeated in later requests on this open file; any value.
    pub handle: FileHandle,
    /// How the kernel is to treat it.
    pub flags: OpenReplyFlags,
    /// The backing file, with `PASSTHROUGH` in `flags`.
    pub backing: Option<BackingId>,
}

/// How a file or directory is being opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenArgs {
    /// `open(2)` flags of the client, without `O_CREAT`, `O_EXCL` and `O_NOCTTY`.
    pub flags: u32,
    /// Set-id bits and capabilities must be dropped: the open truncates and the caller lacks CAP_FSETID.
    pub kill_suidgid: bool,
}

/// What a new inode is to be.
#[derive(Clone, Copy, Debug)]
pub struct NewNode {
    /// File type and permission bits. With `DONT_MASK` the caller's umask was not applied yet.
    pub mode: u32,
    /// The caller's umask, to be applied unless the parent has a default ACL.
    pub umask: u32,
    /// Device number in the wire's encoding (`new_encode_dev`), for device nodes.
    pub rdev: u32,
}

/// A READ.
#[derive(Clone, Copy, Debug)]
pub struct ReadArgs {
    /// The open file.
    pub handle: FileHandle,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// `open(2)` flags as they are now (`O_DIRECT`, `O_NONBLOCK` can change).
    pub flags: u32,
    /// Set when the caller's locks matter.
    pub lock_owner: Option<LockOwner>,
}

/// A WRITE.
#[derive(Clone, Copy, Debug)]
pub struct WriteArgs {
    /// The open file; the kernel's guess when `from_cache` is set.
    pub handle: FileHandle,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// `open(2)` flags as they are now.
    pub flags: u32,
    /// Written back from the page cache: late, and perhaps by another process than the writer.
    pub from_cache: bool,
    /// Set-user-id, set-group-id and capabilities must be dropped: the writer lacks CAP_FSETID.
    pub kill_suidgid: bool,
    /// Set when the caller's locks matter.
    pub lock_owner: Option<LockOwner>,
}

/// The last close of an open file.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseArgs {
    /// The open file, which no later request uses.
    pub handle: FileHandle,
    /// `open(2)` flags as they are now.
    pub flags: u32,
    /// A FLUSH for this owner is to be done too.
    pub flush: Option<LockOwner>,
    /// `flock(2)` locks of this open file are to be dropped for this owner.
    pub flock_unlock: Option<LockOwner>,
}

/// A byte range lock or a whole-file lock.
#[derive(Clone, Copy, Debug)]
pub struct LockArgs {
    /// The open file that was used.
    pub handle: FileHandle,
    /// The owner: a process for POSIX locks, an open file for OFD locks and `flock(2)`.
    pub owner: LockOwner,
    /// Whole-file lock of `flock(2)`; the range is then meaningless.
    pub flock: bool,
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `i64::MAX` for "to the end of the file, however it grows".
    pub end: u64,
    /// `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub kind: u32,
    /// Process id of the owner, for replies to `F_GETLK`.
    pub pid: u32,
}

/// `copy_file_range(2)`.
#[derive(Clone, Copy, Debug)]
pub struct CopyArgs {
    /// Open file to read from.
    pub handle_in: FileHandle,
    /// Where to start reading, in bytes.
    pub offset_in: u64,
    /// Node to write to.
    pub node_out: NodeId,
    /// Open file to write to.
    pub handle_out: FileHandle,
    /// Where to start writing, in bytes.
    pub offset_out: u64,
    /// How many bytes at most.
    pub length: u64,
    /// None are defined by the kernel so far.
    pub flags: u64,
}

/// Figures of a whole file system (`statfs(2)`).
pub type FileSystemStatistics = thrufs_abi::layout::Kstatfs;

//! The trait.

use crate::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FopenFlags, INodeNo,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier,
    RenameFlags, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs,
    ReplyWrite, ReplyXattr, RequestId, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// Who asks.
#[derive(Debug)]
pub struct Request {
    pub(crate) unique: RequestId,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

impl Request {
    /// The request's number.
    pub fn unique(&self) -> RequestId {
        self.unique
    }

    /// The caller's user.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The caller's group.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The caller's thread.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

/// Lookups of an inode that the kernel gives back.
#[derive(Debug)]
pub struct ForgetOne {
    pub(crate) nodeid: INodeNo,
    pub(crate) nlookup: u64,
}

impl ForgetOne {
    /// The inode.
    pub fn nodeid(&self) -> INodeNo {
        self.nodeid
    }

    /// How many.
    pub fn nlookup(&self) -> u64 {
        self.nlookup
    }
}

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*), $reply:ty;)*) => {$(
        $(#[$doc])*
        fn $name(&self, req: &Request, $($argument: $type,)* reply: $reply) {
            tracing::debug!(concat!("the file system has no ", stringify!($name)));
            reply.error(Errno::ENOSYS);
        }
    )*};
}

/// A file system, as fuser has it. Its documentation, and that of [`thrufs::FileSystem`], says what the methods are
/// asked and what their answers mean.
///
/// A method answers by its `reply`, before it returns or later, from any thread.
#[allow(unused_variables, clippy::too_many_arguments)]
pub trait Filesystem: Send + Sync + 'static {
    /// Called before anything else, to ask for capabilities.
    ///
    /// # Errors
    /// Refuses the mount.
    fn init(&mut self, req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        Ok(())
    }

    /// Called once, at the end.
    fn destroy(&mut self) {}

    /// The kernel gives back lookups of an inode.
    fn forget(&self, req: &Request, ino: INodeNo, nlookup: u64) {}

    /// The kernel gives back lookups of inodes.
    fn batch_forget(&self, req: &Request, nodes: &[ForgetOne]) {
        for node in nodes {
            self.forget(req, node.nodeid, node.nlookup);
        }
    }

    /// Makes a symbolic link; EPERM unless the file system has it.
    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    /// Gives an inode another name; EPERM unless the file system has it.
    fn link(
        &self,
        req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    /// Opens a file.
    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    /// The last descriptor of an open file is closed. Nothing waits for the reply.
    fn release(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        flush: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    /// Opens a directory.
    fn opendir(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    /// The last descriptor of an open directory is closed. Nothing waits for the reply.
    fn releasedir(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    /// The figures of the file system.
    fn statfs(&self, req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, 512, 255, 0);
    }

    methods! {
        /// Finds a name.
        lookup(parent: INodeNo, name: &OsStr), ReplyEntry;
        /// Attributes.
        getattr(ino: INodeNo, fh: Option<FileHandle>), ReplyAttr;
        /// Changes attributes. The times of birth, of change and of backup and the flags are `None` on Linux.
        setattr(
            ino: INodeNo, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>, size: Option<u64>,
            atime: Option<TimeOrNow>, mtime: Option<TimeOrNow>, ctime: Option<SystemTime>, fh: Option<FileHandle>,
            crtime: Option<SystemTime>, chgtime: Option<SystemTime>, bkuptime: Option<SystemTime>,
            flags: Option<BsdFileFlags>
        ), ReplyAttr;
        /// The target of a symbolic link.
        readlink(ino: INodeNo), ReplyData;
        /// Makes a file, device node, fifo or socket.
        mknod(parent: INodeNo, name: &OsStr, mode: u32, umask: u32, rdev: u32), ReplyEntry;
        /// Makes a directory.
        mkdir(parent: INodeNo, name: &OsStr, mode: u32, umask: u32), ReplyEntry;
        /// Removes a name that is no directory.
        unlink(parent: INodeNo, name: &OsStr), ReplyEmpty;
        /// Removes an empty directory.
        rmdir(parent: INodeNo, name: &OsStr), ReplyEmpty;
        /// Renames.
        rename(
            parent: INodeNo, name: &OsStr, newparent: INodeNo, newname: &OsStr, flags: RenameFlags
        ), ReplyEmpty;
        /// Reads.
        read(
            ino: INodeNo, fh: FileHandle, offset: u64, size: u32, flags: OpenFlags, lock_owner: Option<LockOwner>
        ), ReplyData;
        /// Writes.
        write(
            ino: INodeNo, fh: FileHandle, offset: u64, data: &[u8], write_flags: WriteFlags, flags: OpenFlags,
            lock_owner: Option<LockOwner>
        ), ReplyWrite;
        /// A descriptor of an open file is closed.
        flush(ino: INodeNo, fh: FileHandle, lock_owner: LockOwner), ReplyEmpty;
        /// Brings a file to stable storage.
        fsync(ino: INodeNo, fh: FileHandle, datasync: bool), ReplyEmpty;
        /// Lists a directory.
        readdir(ino: INodeNo, fh: FileHandle, offset: u64), ReplyDirectory;
        /// Lists a directory with attributes; asked with `FUSE_DO_READDIRPLUS`.
        readdirplus(ino: INodeNo, fh: FileHandle, offset: u64), ReplyDirectoryPlus;
        /// Brings a directory to stable storage.
        fsyncdir(ino: INodeNo, fh: FileHandle, datasync: bool), ReplyEmpty;
        /// Sets an extended attribute. The position is 0 on Linux.
        setxattr(ino: INodeNo, name: &OsStr, value: &[u8], flags: i32, position: u32), ReplyEmpty;
        /// An extended attribute; its size where `size` is 0.
        getxattr(ino: INodeNo, name: &OsStr, size: u32), ReplyXattr;
        /// The names of all extended attributes, each with a NUL; their size where `size` is 0.
        listxattr(ino: INodeNo, size: u32), ReplyXattr;
        /// Removes an extended attribute.
        removexattr(ino: INodeNo, name: &OsStr), ReplyEmpty;
        /// May the caller do this? Not asked with `default_permissions`.
        access(ino: INodeNo, mask: AccessFlags), ReplyEmpty;
        /// Makes a file and opens it.
        create(parent: INodeNo, name: &OsStr, mode: u32, umask: u32, flags: i32), ReplyCreate;
        /// A lock that is in the way of this one.
        getlk(
            ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, start: u64, end: u64, typ: i32, pid: u32
        ), ReplyLock;
        /// Sets or drops a lock.
        setlk(
            ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, start: u64, end: u64, typ: i32, pid: u32,
            sleep: bool
        ), ReplyEmpty;
        /// The device's block of a file's block.
        bmap(ino: INodeNo, blocksize: u32, idx: u64), ReplyBmap;
        /// An ioctl whose argument is encoded in its number.
        ioctl(
            ino: INodeNo, fh: FileHandle, flags: IoctlFlags, cmd: u32, in_data: &[u8], out_size: u32
        ), ReplyIoctl;
        /// Which events are ready.
        poll(ino: INodeNo, fh: FileHandle, ph: PollNotifier, events: PollEvents, flags: PollFlags), ReplyPoll;
        /// `fallocate(2)`.
        fallocate(ino: INodeNo, fh: FileHandle, offset: u64, length: u64, mode: i32), ReplyEmpty;
        /// `lseek(2)` for data and holes.
        lseek(ino: INodeNo, fh: FileHandle, offset: i64, whence: i32), ReplyLseek;
        /// `copy_file_range(2)`.
        copy_file_range(
            ino_in: INodeNo, fh_in: FileHandle, offset_in: u64, ino_out: INodeNo, fh_out: FileHandle,
            offset_out: u64, len: u64, flags: CopyFileRangeFlags
        ), ReplyWrite;
    }
}

//! The trait of 0.16, and a value of it as one of 0.18's.

use crate::reply::{
    ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr,
};
use crate::{KernelConfig, PollHandle, Request, fuse_forget_one};
use libc::c_int;
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::SystemTime;
use thrufs_fuser as new;
use thrufs_fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, INodeNo, IoctlFlags, LockOwner, OpenFlags, PollEvents,
    PollFlags, PollNotifier, RenameFlags, TimeOrNow, WriteFlags,
};

/// What an argument of 0.18 was in 0.16.
trait Old<T> {
    fn old(self) -> T;
}

impl<T> Old<T> for T {
    fn old(self) -> T {
        self
    }
}

macro_rules! old {
    ($($from:ty => $to:ty, |$value:ident| $old:expr;)*) => {$(
        impl Old<$to> for $from {
            fn old(self) -> $to {
                let $value = self;
                $old
            }
        }

        impl Old<Option<$to>> for Option<$from> {
            fn old(self) -> Option<$to> {
                self.map(Old::old)
            }
        }
    )*};
}

old! {
    INodeNo => u64, |ino| ino.0;
    FileHandle => u64, |handle| handle.0;
    LockOwner => u64, |owner| owner.0;
    OpenFlags => i32, |flags| flags.0;
    AccessFlags => i32, |mask| mask.bits();
    BsdFileFlags => u32, |flags| flags.bits();
    CopyFileRangeFlags => u32, |flags| flags.bits() as u32;
    IoctlFlags => u32, |flags| flags.bits();
    PollEvents => u32, |events| events.bits();
    PollFlags => u32, |flags| flags.bits();
    RenameFlags => u32, |flags| flags.bits();
    WriteFlags => u32, |flags| flags.bits();
    u64 => i64, |offset| offset as i64;
    PollNotifier => PollHandle, |notifier| PollHandle(notifier);
}

/// Every method whose default is an error: its arguments, in 0.18 and in 0.16, its reply, and that error.
macro_rules! table {
    ($use:ident) => {
        $use! {
            lookup(parent: INodeNo => u64, name: &OsStr => &OsStr), ReplyEntry, ENOSYS;
            getattr(ino: INodeNo => u64, fh: Option<FileHandle> => Option<u64>), ReplyAttr, ENOSYS;
            setattr(
                ino: INodeNo => u64, mode: Option<u32> => Option<u32>, uid: Option<u32> => Option<u32>,
                gid: Option<u32> => Option<u32>, size: Option<u64> => Option<u64>,
                atime: Option<TimeOrNow> => Option<TimeOrNow>, mtime: Option<TimeOrNow> => Option<TimeOrNow>,
                ctime: Option<SystemTime> => Option<SystemTime>, fh: Option<FileHandle> => Option<u64>,
                crtime: Option<SystemTime> => Option<SystemTime>, chgtime: Option<SystemTime> => Option<SystemTime>,
                bkuptime: Option<SystemTime> => Option<SystemTime>, flags: Option<BsdFileFlags> => Option<u32>
            ), ReplyAttr, ENOSYS;
            readlink(ino: INodeNo => u64), ReplyData, ENOSYS;
            mknod(parent: INodeNo => u64, name: &OsStr => &OsStr, mode: u32 => u32, umask: u32 => u32,
                rdev: u32 => u32), ReplyEntry, ENOSYS;
            mkdir(parent: INodeNo => u64, name: &OsStr => &OsStr, mode: u32 => u32, umask: u32 => u32),
                ReplyEntry, ENOSYS;
            unlink(parent: INodeNo => u64, name: &OsStr => &OsStr), ReplyEmpty, ENOSYS;
            rmdir(parent: INodeNo => u64, name: &OsStr => &OsStr), ReplyEmpty, ENOSYS;
            symlink(parent: INodeNo => u64, link_name: &OsStr => &OsStr, target: &Path => &Path), ReplyEntry, EPERM;
            rename(parent: INodeNo => u64, name: &OsStr => &OsStr, newparent: INodeNo => u64,
                newname: &OsStr => &OsStr, flags: RenameFlags => u32), ReplyEmpty, ENOSYS;
            link(ino: INodeNo => u64, newparent: INodeNo => u64, newname: &OsStr => &OsStr), ReplyEntry, EPERM;
            read(ino: INodeNo => u64, fh: FileHandle => u64, offset: u64 => i64, size: u32 => u32,
                flags: OpenFlags => i32, lock_owner: Option<LockOwner> => Option<u64>), ReplyData, ENOSYS;
            write(ino: INodeNo => u64, fh: FileHandle => u64, offset: u64 => i64, data: &[u8] => &[u8],
                write_flags: WriteFlags => u32, flags: OpenFlags => i32, lock_owner: Option<LockOwner> => Option<u64>),
                ReplyWrite, ENOSYS;
            flush(ino: INodeNo => u64, fh: FileHandle => u64, lock_owner: LockOwner => u64), ReplyEmpty, ENOSYS;
            fsync(ino: INodeNo => u64, fh: FileHandle => u64, datasync: bool => bool), ReplyEmpty, ENOSYS;
            readdir(ino: INodeNo => u64, fh: FileHandle => u64, offset: u64 => i64), ReplyDirectory, ENOSYS;
            readdirplus(ino: INodeNo => u64, fh: FileHandle => u64, offset: u64 => i64), ReplyDirectoryPlus, ENOSYS;
            fsyncdir(ino: INodeNo => u64, fh: FileHandle => u64, datasync: bool => bool), ReplyEmpty, ENOSYS;
            setxattr(ino: INodeNo => u64, name: &OsStr => &OsStr, value: &[u8] => &[u8], flags: i32 => i32,
                position: u32 => u32), ReplyEmpty, ENOSYS;
            getxattr(ino: INodeNo => u64, name: &OsStr => &OsStr, size: u32 => u32), ReplyXattr, ENOSYS;
            listxattr(ino: INodeNo => u64, size: u32 => u32), ReplyXattr, ENOSYS;
            removexattr(ino: INodeNo => u64, name: &OsStr => &OsStr), ReplyEmpty, ENOSYS;
            access(ino: INodeNo => u64, mask: AccessFlags => i32), ReplyEmpty, ENOSYS;
            create(parent: INodeNo => u64, name: &OsStr => &OsStr, mode: u32 => u32, umask: u32 => u32,
                flags: i32 => i32), ReplyCreate, ENOSYS;
            getlk(ino: INodeNo => u64, fh: FileHandle => u64, lock_owner: LockOwner => u64, start: u64 => u64,
                end: u64 => u64, typ: i32 => i32, pid: u32 => u32), ReplyLock, ENOSYS;
            setlk(ino: INodeNo => u64, fh: FileHandle => u64, lock_owner: LockOwner => u64, start: u64 => u64,
                end: u64 => u64, typ: i32 => i32, pid: u32 => u32, sleep: bool => bool), ReplyEmpty, ENOSYS;
            bmap(ino: INodeNo => u64, blocksize: u32 => u32, idx: u64 => u64), ReplyBmap, ENOSYS;
            ioctl(ino: INodeNo => u64, fh: FileHandle => u64, flags: IoctlFlags => u32, cmd: u32 => u32,
                in_data: &[u8] => &[u8], out_size: u32 => u32), ReplyIoctl, ENOSYS;
            poll(ino: INodeNo => u64, fh: FileHandle => u64, ph: PollNotifier => PollHandle,
                events: PollEvents => u32, flags: PollFlags => u32), ReplyPoll, ENOSYS;
            fallocate(ino: INodeNo => u64, fh: FileHandle => u64, offset: u64 => i64, length: u64 => i64,
                mode: i32 => i32), ReplyEmpty, ENOSYS;
            lseek(ino: INodeNo => u64, fh: FileHandle => u64, offset: i64 => i64, whence: i32 => i32),
                ReplyLseek, ENOSYS;
            copy_file_range(ino_in: INodeNo => u64, fh_in: FileHandle => u64, offset_in: u64 => i64,
                ino_out: INodeNo => u64, fh_out: FileHandle => u64, offset_out: u64 => i64, len: u64 => u64,
                flags: CopyFileRangeFlags => u32), ReplyWrite, ENOSYS;
        }
    };
}

macro_rules! methods {
    ($($name:ident($($argument:ident: $from:ty => $to:ty),*), $reply:ident, $error:ident;)*) => {
        /// A file system, as fuser 0.16 has it; its documentation says what the methods are asked.
        ///
        /// A method answers by its `reply`, before it returns or later, from any thread.
        #[allow(unused_variables, clippy::too_many_arguments)]
        pub trait Filesystem {
            /// Called before anything else, to ask for capabilities.
            ///
            /// # Errors
            /// Refuses the mount.
            fn init(&mut self, req: &Request<'_>, config: &mut KernelConfig<'_>) -> Result<(), c_int> {
                Ok(())
            }

            /// Called once, at the end.
            fn destroy(&mut self) {}

            /// The kernel gives back lookups of an inode.
            fn forget(&mut self, req: &Request<'_>, ino: u64, nlookup: u64) {}

            /// The kernel gives back lookups of inodes.
            fn batch_forget(&mut self, req: &Request<'_>, nodes: &[fuse_forget_one]) {
                for node in nodes {
                    self.forget(req, node.nodeid, node.nlookup);
                }
            }

            /// Opens a file.
            fn open(&mut self, req: &Request<'_>, ino: u64, flags: i32, reply: ReplyOpen) {
                reply.opened(0, 0);
            }

            /// The last descriptor of an open file is closed. Nothing waits for the reply.
            fn release(
                &mut self, req: &Request<'_>, ino: u64, fh: u64, flags: i32, lock_owner: Option<u64>, flush: bool,
                reply: ReplyEmpty,
            ) {
                reply.ok();
            }

            /// Opens a directory.
            fn opendir(&mut self, req: &Request<'_>, ino: u64, flags: i32, reply: ReplyOpen) {
                reply.opened(0, 0);
            }

            /// The last descriptor of an open directory is closed. Nothing waits for the reply.
            fn releasedir(&mut self, req: &Request<'_>, ino: u64, fh: u64, flags: i32, reply: ReplyEmpty) {
                reply.ok();
            }

            /// The figures of the file system.
            fn statfs(&mut self, req: &Request<'_>, ino: u64, reply: ReplyStatfs) {
                reply.statfs(0, 0, 0, 0, 0, 512, 255, 0);
            }

            $(
                #[doc = concat!("See `fuser::Filesystem::", stringify!($name), "`; ", stringify!($error), " by default.")]
                fn $name(&mut self, req: &Request<'_>, $($argument: $to,)* reply: $reply) {
                    tracing::debug!(concat!("the file system has no ", stringify!($name)));
                    reply.error(libc::$error);
                }
            )*
        }
    };
}

table!(methods);

/// Called by one thread at a time, the session having one reader; the lock says so to the compiler.
#[derive(Debug)]
pub(crate) struct Bridge<FS>(pub(crate) Mutex<FS>);

macro_rules! bridge {
    ($($name:ident($($argument:ident: $from:ty => $to:ty),*), $reply:ident, $error:ident;)*) => {
        impl<FS: Filesystem + Send + 'static> new::Filesystem for Bridge<FS> {
            fn init(&mut self, req: &new::Request, config: &mut new::KernelConfig) -> io::Result<()> {
                let asked = self.0.get_mut().init(&Request(req), &mut KernelConfig(config));
                asked.map_err(io::Error::from_raw_os_error)
            }

            fn destroy(&mut self) {
                self.0.get_mut().destroy();
            }

            fn batch_forget(&self, req: &new::Request, nodes: &[new::ForgetOne]) {
                let old = |node: &new::ForgetOne| fuse_forget_one { nodeid: node.nodeid().0, nlookup: node.nlookup() };
                let nodes: Vec<fuse_forget_one> = nodes.iter().map(old).collect();
                self.0.lock().batch_forget(&Request(req), &nodes);
            }

            fn open(&self, req: &new::Request, ino: INodeNo, flags: OpenFlags, reply: new::ReplyOpen) {
                self.0.lock().open(&Request(req), ino.0, flags.0, ReplyOpen(reply));
            }

            fn release(
                &self, req: &new::Request, ino: INodeNo, fh: FileHandle, flags: OpenFlags, owner: Option<LockOwner>,
                flush: bool, reply: new::ReplyEmpty,
            ) {
                let reply = ReplyEmpty(reply);
                self.0.lock().release(&Request(req), ino.0, fh.0, flags.0, owner.old(), flush, reply);
            }

            fn opendir(&self, req: &new::Request, ino: INodeNo, flags: OpenFlags, reply: new::ReplyOpen) {
                self.0.lock().opendir(&Request(req), ino.0, flags.0, ReplyOpen(reply));
            }

            fn releasedir(
                &self, req: &new::Request, ino: INodeNo, fh: FileHandle, flags: OpenFlags, reply: new::ReplyEmpty,
            ) {
                self.0.lock().releasedir(&Request(req), ino.0, fh.0, flags.0, ReplyEmpty(reply));
            }

            fn statfs(&self, req: &new::Request, ino: INodeNo, reply: new::ReplyStatfs) {
                self.0.lock().statfs(&Request(req), ino.0, ReplyStatfs(reply));
            }

            $(
                fn $name(&self, req: &new::Request, $($argument: $from,)* reply: new::$reply) {
                    self.0.lock().$name(&Request(req), $(Old::<$to>::old($argument),)* $reply(reply));
                }
            )*
        }
    };
}

table!(bridge);

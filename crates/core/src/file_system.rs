//! The trait of a file system: its methods, and what their results mean to the kernel.

use crate::attributes::{
    Attributes, CopyArgs, Entry, ExtendedAttributes, FileSystemStatistics, LockArgs, NewNode,
    OpenArgs, Opened, ReadArgs, ReleaseArgs, SetAttr, WriteArgs,
};
use crate::backing::Services;
use crate::context::Context;
use crate::data::{ReadAnswer, ReadReply, WriteSource};
use crate::directory::DirectorySink;
use crate::errno::{Errno, Result};
use crate::features::{Features, Negotiation};
use crate::mount::MountOptions;
use crate::window::{MapArgs, MappedFile};
use std::ffi::CStr;
use std::io;
use thrufs_abi::{FileHandle, LockOwner, Name, NodeId};

/// A file system.
///
/// One value serves all requests of a connection, from several threads at once. Every method has a
/// default. Most defaults return `ENOSYS`, which the kernel remembers for the whole connection where it
/// can do without the operation (OPEN, FLUSH, FSYNC, ACCESS, xattrs, locks, ...).
///
/// **Nodes.** The kernel names inodes by [`NodeId`]. The root is [`NodeId::ROOT`] and needs no lookup. Any
/// other node exists from the first reply that carries it in an [`Entry`]; each such reply raises its lookup
/// count by one, and [`forget`](Self::forget) lowers it. At zero, the kernel does not name it again, and the
/// number may be reused for another inode, with another generation. A node outlives its names: after unlink
/// it is used as long as a process has it open.
///
/// **Names** are one component: never empty, never with a slash; `.` and `..` appear in
/// [`lookup`](Self::lookup) alone, and only when `EXPORT_SUPPORT` was agreed on.
///
/// **Permissions.** On a mount with `default_permissions` the kernel has checked modes and ACLs. Without
/// it, the file system must check for itself, [`access`](Self::access) included; one that does not says so
/// by [`may_be_mounted`](Self::may_be_mounted).
///
/// **Sleeping.** A thread that other requests wait for must not sleep: see [`Context::may_block`]. A method
/// that would have to returns [`Errno::DEFER`] before it has changed anything, and is called again where it
/// may.
///
/// **Answers that come later.** A method whose answer comes from elsewhere need not sleep: see
/// [`Context::answer_later`].
///
/// **Errors** are those of the system call that a method is named for, unless its documentation says
/// otherwise.
///
/// **Order.** The kernel sends requests of one caller in order, and those of several callers at once. FORGET
/// and RELEASE arrive late: after the calls that caused them have returned.
#[allow(unused_variables)]
pub trait FileSystem: Send + Sync + 'static {
    /// Called by [`mount`](crate::mount()) before it mounts. A file system that relies on the kernel's
    /// permission checks refuses mounts that other users can use without them.
    ///
    /// # Errors
    /// The reason, as a sentence.
    fn may_be_mounted(&self, options: &MountOptions) -> std::result::Result<(), &'static str> {
        Ok(())
    }

    /// Called once, before anything else, to ask for capabilities.
    ///
    /// # Errors
    /// Refuses the mount.
    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        Ok(())
    }

    /// Called once the kernel has the reply to INIT, with what is in force and the session's services.
    /// Requests may already be arriving on other threads.
    fn started(&self, features: &Features, services: Services) {}

    /// Called once, when the connection has ended (unmounted or aborted); no other method runs or will run.
    fn destroy(&self) {}

    /// Writes the state from which another process, perhaps on another machine, resumes this session: nodes
    /// and their lookup counts, open files, locks. No other method runs meanwhile; the session may also
    /// continue here.
    ///
    /// # Errors
    /// `Unsupported` (the default); those of `sink`; whatever makes the state immovable.
    ///
    /// `Unsupported` (the default); what `sink` says; whatever keeps the state from being moved.
    fn save(&self, sink: &mut dyn io::Write) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Resumes from the state that [`save`](Self::save) of another process wrote, which may be damaged or
    /// hostile. Called at most once, after `init` and `started` and before any request.
    ///
    /// # Errors
    /// `Unsupported` (the default), `InvalidData` for what is no such state, those of `source`. The file
    /// system cannot be used afterwards.
    fn restore(&self, source: &mut dyn io::Read) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Resumes from the state that a process that died has left in a place that both were given. Called
    /// instead of [`restore`](Self::restore), at the same time.
    ///
    /// # Errors
    /// As [`restore`](Self::restore).
    fn recover(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Finds `name` in `parent` and counts a lookup of the node found.
    ///
    /// `Ok` of [`Entry::negative`] lets the kernel cache the absence; `ENOENT` does not.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ESTALE` (the kernel then looks up the path anew), ...
    fn lookup(&self, context: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry>;

    /// Subtracts `count` lookups of `node`. There is no reply.
    fn forget(&self, node: NodeId, count: u64) {}

    /// The attributes of a node; with the `handle` of `fstat(2)`.
    ///
    /// # Errors
    /// `ESTALE` when the node is gone, ...
    fn getattr(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: Option<FileHandle>,
    ) -> Result<Attributes>;

    /// Attributes for `statx(2)` only, above all the time of birth. `mask` has the wanted `STATX_*` bits,
    /// `flags` the `AT_STATX_*` synchronisation bits.
    ///
    /// # Errors
    /// `ENOSYS` makes the kernel use [`getattr`](Self::getattr) for good.
    fn statx(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: Option<FileHandle>,
        flags: u32,
        mask: u32,
    ) -> Result<ExtendedAttributes> {
        Err(Errno::ENOSYS)
    }

    /// Changes attributes and returns the new ones. See [`SetAttr`] for the request without any.
    ///
    /// # Errors
    /// `EPERM`, `EACCES`, `EROFS`, `EFBIG`, ...
    fn setattr(&self, context: &Context<'_>, node: NodeId, set: &SetAttr) -> Result<Attributes> {
        Err(Errno::ENOSYS)
    }

    /// Writes the target of a symbolic link to `buffer` (without a NUL) and returns its length.
    ///
    /// # Errors
    /// `EINVAL` when `node` is no symbolic link, `ENAMETOOLONG` when it does not fit.
    fn readlink(&self, context: &Context<'_>, node: NodeId, buffer: &mut [u8]) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// Makes a symbolic link and counts a lookup of it.
    fn symlink(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        target: &CStr,
    ) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Makes a file, device node, fifo or socket and counts a lookup of it.
    fn mknod(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: &NewNode,
    ) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Makes a directory and counts a lookup of it.
    fn mkdir(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: &NewNode,
    ) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Removes a name that is no directory. Lookup counts do not change.
    fn unlink(&self, context: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Removes an empty directory.
    fn rmdir(&self, context: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Renames; `flags` are those of `renameat2(2)`.
    ///
    /// # Errors
    /// As `renameat2(2)`; `EINVAL` for flags that are not known.
    fn rename(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new_parent: NodeId,
        new_name: Name<'_>,
        flags: u32,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Gives `node` another name and counts a lookup of it.
    fn link(
        &self,
        context: &Context<'_>,
        node: NodeId,
        new_parent: NodeId,
        new_name: Name<'_>,
    ) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As `open(2)`. `ENOSYS` (the default) means that files need no open: the kernel never asks
    /// again, sends no RELEASE, and every request carries handle 0.
    fn open(&self, context: &Context<'_>, node: NodeId, args: &OpenArgs) -> Result<Opened> {
        Err(Errno::ENOSYS)
    }

    /// Makes a file and opens it; counts a lookup. `O_EXCL` may be among the flags.
    ///
    /// # Errors
    /// As `open(2)`. `ENOSYS` (the default) makes the kernel use [`mknod`](Self::mknod) and
    /// [`open`](Self::open).
    fn create(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: &NewNode,
        args: &OpenArgs,
    ) -> Result<(Entry, Opened)> {
        Err(Errno::ENOSYS)
    }

    /// Makes a file without a name in `parent`'s file system (`O_TMPFILE`) and opens it; counts a
    /// lookup.
    fn tmpfile(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        new: &NewNode,
        args: &OpenArgs,
    ) -> Result<(Entry, Opened)> {
        Err(Errno::ENOSYS)
    }

    /// Reads; see [`ReadReply`] for the ways to answer. Fewer bytes than asked mean the end of the
    /// file.
    fn read(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &ReadArgs,
        reply: ReadReply<'_>,
    ) -> Result<ReadAnswer> {
        Err(Errno::ENOSYS)
    }

    /// Writes, and returns the bytes written.
    fn write(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &WriteArgs,
        data: WriteSource<'_>,
    ) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// A descriptor of an open file was closed; `owner` gives up its POSIX locks on the file. Comes
    /// once per close, so perhaps often for one open.
    ///
    /// # Errors
    /// What `close(2)` is to return. `ENOSYS` (the default) ends FLUSH for the connection.
    fn flush(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        owner: LockOwner,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// The last descriptor of an open file was closed. Nothing waits for the reply.
    fn release(&self, context: &Context<'_>, node: NodeId, args: &ReleaseArgs) {}

    /// Brings a file to stable storage; with `data_only` just what is needed to read it back.
    fn fsync(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        data_only: bool,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// As `open(2)`; `ENOSYS` (the default) as for [`open`](Self::open).
    fn opendir(&self, context: &Context<'_>, node: NodeId, args: &OpenArgs) -> Result<Opened> {
        Err(Errno::ENOSYS)
    }

    /// Lists a directory from `offset` on (0, or the `next_offset` of an entry) until the sink is full. A
    /// reply without entries is the end.
    fn readdir(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// The last descriptor of an open directory is gone.
    fn releasedir(&self, context: &Context<'_>, node: NodeId, args: &ReleaseArgs) {}

    /// Brings a directory to stable storage.
    fn fsyncdir(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        data_only: bool,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Statistics of the file system that holds `node`; by default those of unknown size, as `df(1)` shows
    /// `/proc`.
    fn statfs(&self, context: &Context<'_>, node: NodeId) -> Result<FileSystemStatistics> {
        Ok(FileSystemStatistics {
            bsize: 4096,
            frsize: 4096,
            namelen: 255,
            ..FileSystemStatistics::default()
        })
    }

    /// Brings the whole file system to stable storage (`syncfs(2)`; sent over virtio-fs only).
    fn syncfs(&self, context: &Context<'_>, node: NodeId) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Sets an extended attribute. `flags` are `XATTR_CREATE` or `XATTR_REPLACE`; `clear_set_group_id`
    /// comes with an ACL that is set by a caller outside of the file's group.
    fn setxattr(
        &self,
        context: &Context<'_>,
        node: NodeId,
        name: &CStr,
        value: &[u8],
        flags: u32,
        clear_set_group_id: bool,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Writes an extended attribute's value to `buffer` and returns its length; an empty buffer
    /// asks for the length alone.
    ///
    /// # Errors
    /// As `getxattr(2)`: `ENODATA`, `ERANGE` when the buffer is too small, ...
    fn getxattr(
        &self,
        context: &Context<'_>,
        node: NodeId,
        name: &CStr,
        buffer: &mut [u8],
    ) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// Writes the names of all extended attributes to `buffer`, each ended by a NUL, and returns
    /// their length; an empty buffer asks for the length alone.
    fn listxattr(&self, context: &Context<'_>, node: NodeId, buffer: &mut [u8]) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// Removes an extended attribute.
    fn removexattr(&self, context: &Context<'_>, node: NodeId, name: &CStr) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// May the caller do this (`access(2)`)? Not asked with `default_permissions`.
    ///
    /// # Errors
    /// `EACCES` for no.
    fn access(&self, context: &Context<'_>, node: NodeId, mask: u32) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// A lock that conflicts with this one, or `None`.
    fn getlk(
        &self,
        context: &Context<'_>,
        node: NodeId,
        lock: &LockArgs,
    ) -> Result<Option<LockArgs>> {
        Err(Errno::ENOSYS)
    }

    /// Sets or drops a lock; with `wait`, sleeps until there is no conflict (see
    /// [`Context::interruptible`]).
    ///
    /// # Errors
    /// As `fcntl(2)` and `flock(2)`: `EAGAIN`, `EINTR`, `EDEADLK`, `ENOLCK`, ...
    fn setlk(
        &self,
        context: &Context<'_>,
        node: NodeId,
        lock: &LockArgs,
        wait: bool,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// `fallocate(2)`, with its mode bits.
    ///
    /// # Errors
    /// As `fallocate(2)`. `ENOSYS` becomes `EOPNOTSUPP`, for good.
    fn fallocate(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: u32,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// `lseek(2)` for `SEEK_DATA` and `SEEK_HOLE`; the kernel handles the others.
    ///
    /// # Errors
    /// As `lseek(2)`: `ENXIO` past the end, ...
    fn lseek(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        whence: u32,
    ) -> Result<u64> {
        Err(Errno::ENOSYS)
    }

    /// Copies between two open files, and returns the bytes copied.
    ///
    /// # Errors
    /// As `copy_file_range(2)`. `ENOSYS`, `EXDEV` and `EOPNOTSUPP` make the kernel copy by itself.
    fn copy_file_range(&self, context: &Context<'_>, node: NodeId, copy: &CopyArgs) -> Result<u64> {
        Err(Errno::ENOSYS)
    }

    /// The file whose part a guest maps into the DAX window. Asked where the transport has a window, for nodes
    /// whose attributes have `FUSE_ATTR_DAX`, and for all if the guest mounts with `dax=always`.
    ///
    /// # Errors
    /// The error of the guest's read or write: the guest does not fall back to READ and WRITE.
    fn map(&self, context: &Context<'_>, node: NodeId, args: &MapArgs) -> Result<MappedFile> {
        Err(Errno::ENOSYS)
    }

    /// An ioctl whose argument is encoded in `command` (restricted mode). `data` holds `input_length` bytes
    /// of input and takes the output; returns the ioctl's result and the length of the output.
    ///
    /// # Errors
    /// As `ioctl(2)`: `ENOTTY` for one that is not known.
    fn ioctl(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        command: u32,
        data: &mut [u8],
        input_length: usize,
    ) -> Result<(i32, usize)> {
        Err(Errno::ENOSYS)
    }

    /// Which of `events` (`poll(2)`) are ready. `ENOSYS` (the default) means "always", for good.
    ///
    /// # Errors
    /// Any.
    fn poll(
        &self,
        context: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        events: u32,
    ) -> Result<u32> {
        Err(Errno::ENOSYS)
    }

    /// The device's block of a file's `block`, for `swapon` and boot loaders on mounts of block devices.
    ///
    /// # Errors
    /// Any.
    fn bmap(
        &self,
        context: &Context<'_>,
        node: NodeId,
        block: u64,
        block_bytes: u32,
    ) -> Result<u64> {
        Err(Errno::ENOSYS)
    }

    /// Data that [`Notifier::retrieve`](crate::Notifier::retrieve) asked for: what the kernel's page cache
    /// has of `node` at `offset`.
    fn retrieved(&self, node: NodeId, cookie: thrufs_abi::Unique, offset: u64, data: &[u8]) {}
}

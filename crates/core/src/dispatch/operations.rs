//! Calls the method of each operation with its arguments, and writes the reply.

use super::arguments::{
    copy_args, create_args, lock_args, mkdir_args, mknod_args, open_args, read_args, release_args,
    set_attr, write_args,
};
use super::{Agreed, Dispatcher, Done};
use crate::attributes::{Attributes, Entry, Opened};
use crate::context::Context;
use crate::data::{ReadReply, ReadSource, WriteSource};
use crate::directory::DirectorySink;
use crate::errno::{Errno, Result};
use crate::file_system::FileSystem;
use crate::metrics::bump;
use crate::notify::PollHandle;
use crate::reply::{attr_out, entry_out, lk_out, open_out, put, put_created, statx_out};
use thrufs_abi::layout::{
    BmapOut, CopyFileRangeIn, CopyFileRangeOut, FsyncIn, GetxattrOut, IoctlIn, IoctlOut, LkIn,
    LseekOut, PollIn, PollOut, ReadIn, StatfsOut, WriteIn, WriteOut,
};
use thrufs_abi::{
    FileHandle, FsyncFlags, InitFlags, IoctlFlags, Name, NodeId, Operation, PollFlags, Request,
    SetxattrFlags,
};
use zerocopy::{Immutable, IntoBytes};

/// The longest target of a symbolic link that the kernel takes: a page without the NUL.
const LINK_TARGET_BYTES_MAX: usize = 4095;

fn fixed(body: &mut [u8], structure: &(impl IntoBytes + Immutable)) -> Result<Done> {
    put(body, structure).map(Done::Body)
}

fn entry(body: &mut [u8], entry: Result<Entry>) -> Result<Done> {
    fixed(body, &entry_out(&entry?))
}

fn attributes(body: &mut [u8], attributes: Result<Attributes>) -> Result<Done> {
    fixed(body, &attr_out(&attributes?))
}

fn opened(body: &mut [u8], opened: Result<Opened>) -> Result<Done> {
    fixed(body, &open_out(&opened?))
}

fn created(body: &mut [u8], created: Result<(Entry, Opened)>) -> Result<Done> {
    let (entry, opened) = created?;
    put_created(body, &entry, &opened).map(Done::Body)
}

fn put_written(body: &mut [u8], size: u32) -> Result<usize> {
    put(body, &WriteOut { size, padding: 0 })
}

fn data(body: usize, moved: usize) -> Result<Done> {
    Ok(Done::Data { body, moved })
}

fn empty(result: Result<()>) -> Result<Done> {
    result.map(|()| Done::Body(0))
}

fn data_only(arg: &FsyncIn) -> bool {
    FsyncFlags::from_bits_retain(arg.fsync_flags).contains(FsyncFlags::FDATASYNC)
}

/// The part of `body` that may be filled when the client has room for `size` bytes.
fn limited(body: &mut [u8], size: u32) -> &mut [u8] {
    let length = body.len().min(size as usize);
    &mut body[..length]
}

/// Refuses negative offsets: -1 makes preadv2(2) and pwritev2(2) use the file's position, which belongs to
/// no client.
fn check_offset(offset: u64) -> Result<()> {
    match i64::try_from(offset) {
        Ok(_) => Ok(()),
        Err(_) => Err(Errno::EINVAL),
    }
}

/// The largest fixed body. A smaller buffer is refused before a method is called: a result that does not
/// fit would leave a node that the kernel does not know.
const FIXED_BODY_BYTES_MAX: usize = 512;

/// Who asks, and about which node.
type At<'a> = (&'a Context<'a>, NodeId);

impl<F: FileSystem> Dispatcher<F> {
    /// Calls the method of an operation. There is no arm for the rest, so a new operation does not compile
    /// without one.
    pub(super) fn carry_out(
        &self,
        agreed: &Agreed,
        context: &Context<'_>,
        request: &Request<'_>,
        out_of_line: Option<WriteSource<'_>>,
        body: &mut [u8],
    ) -> Result<Done> {
        if body.len() < FIXED_BODY_BYTES_MAX {
            return Err(Errno::EIO);
        }
        let (fs, node) = (&*self.fs, request.header.nodeid);
        let at = (context, node);
        match &request.operation {
            Operation::Lookup { name } => {
                if !agreed.has(InitFlags::EXPORT_SUPPORT) {
                    self.plain(name)?;
                }
                entry(body, fs.lookup(context, node, *name))
            }
            Operation::Forget { nlookup } => {
                fs.forget(node, *nlookup);
                empty(Ok(()))
            }
            Operation::BatchForget { forgets } => {
                for (node, count) in forgets.iter() {
                    fs.forget(node, count);
                }
                empty(Ok(()))
            }
            Operation::Getattr { fh } => attributes(body, fs.getattr(context, node, *fh)),
            Operation::Setattr(arg) => attributes(body, fs.setattr(context, node, &set_attr(arg))),
            Operation::Statx { fh, flags, mask } => {
                let statx = fs.statx(context, node, *fh, *flags, *mask)?;
                fixed(body, &statx_out(&statx))
            }
            Operation::Readlink => self.readlink(context, node, body),
            Operation::Symlink { name, target } => {
                entry(body, fs.symlink(context, node, self.plain(name)?, target))
            }
            Operation::Mknod { arg, name } => {
                let args = mknod_args(arg);
                entry(body, fs.mknod(context, node, self.plain(name)?, &args))
            }
            Operation::Mkdir { arg, name } => {
                let args = mkdir_args(arg);
                entry(body, fs.mkdir(context, node, self.plain(name)?, &args))
            }
            Operation::Unlink { name } => empty(fs.unlink(context, node, self.plain(name)?)),
            Operation::Rmdir { name } => empty(fs.rmdir(context, node, self.plain(name)?)),
            Operation::Rename {
                new_parent,
                flags,
                name,
                new_name,
            } => {
                let (from, to) = (self.plain(name)?, self.plain(new_name)?);
                empty(fs.rename(context, node, from, *new_parent, to, *flags))
            }
            Operation::Link { old_node, name } => {
                entry(body, fs.link(context, *old_node, node, self.plain(name)?))
            }
            Operation::Open(arg) => opened(body, fs.open(context, node, &open_args(arg))),
            Operation::Opendir(arg) => opened(body, fs.opendir(context, node, &open_args(arg))),
            Operation::Create { arg, name } => {
                let (new, args) = create_args(arg);
                created(
                    body,
                    fs.create(context, node, self.plain(name)?, &new, &args),
                )
            }
            Operation::Tmpfile { arg } => {
                let (new, args) = create_args(arg);
                created(body, fs.tmpfile(context, node, &new, &args))
            }
            Operation::Read(arg) => self.read(agreed, at, arg, body),
            Operation::Write { arg, data } => {
                let source = out_of_line.unwrap_or(WriteSource::from_bytes(data));
                self.write(at, arg, source, body)
            }
            Operation::Flush { fh, lock_owner } => empty(fs.flush(context, node, *fh, *lock_owner)),
            Operation::Release(arg) => {
                fs.release(context, node, &release_args(arg));
                empty(Ok(()))
            }
            Operation::Releasedir(arg) => {
                fs.releasedir(context, node, &release_args(arg));
                empty(Ok(()))
            }
            Operation::Readdir(arg) => self.readdir(at, arg, false, body),
            Operation::Readdirplus(_) if !agreed.has(InitFlags::DO_READDIRPLUS) => {
                Err(Errno::ENOSYS)
            }
            Operation::Readdirplus(arg) => self.readdir(at, arg, true, body),
            Operation::Fsync(arg) => {
                empty(fs.fsync(context, node, FileHandle(arg.fh), data_only(arg)))
            }
            Operation::Fsyncdir(arg) => {
                empty(fs.fsyncdir(context, node, FileHandle(arg.fh), data_only(arg)))
            }
            Operation::Syncfs => empty(fs.syncfs(context, node)),
            Operation::Statfs => {
                let st = fs.statfs(context, node)?;
                fixed(body, &StatfsOut { st })
            }
            Operation::Access { mask } => empty(fs.access(context, node, *mask)),
            Operation::Setxattr {
                name,
                value,
                flags,
                setxattr_flags,
            } => {
                let clear = SetxattrFlags::from_bits_retain(*setxattr_flags)
                    .contains(SetxattrFlags::ACL_KILL_SGID);
                empty(fs.setxattr(context, node, name, value, *flags, clear))
            }
            Operation::Getxattr { name, size } => xattr_answer(*size, body, |buffer| {
                fs.getxattr(context, node, name, buffer)
            }),
            Operation::Listxattr { size } => {
                xattr_answer(*size, body, |buffer| fs.listxattr(context, node, buffer))
            }
            Operation::Removexattr { name } => empty(fs.removexattr(context, node, name)),
            Operation::Getlk(arg) => {
                let lock = fs.getlk(context, node, &lock_args(arg))?;
                fixed(body, &lk_out(lock.as_ref()))
            }
            Operation::Setlk(arg) => self.setlk(context, node, arg, false),
            Operation::Setlkw(arg) => self.setlk(context, node, arg, true),
            Operation::Fallocate(arg) => {
                let (handle, offset) = (FileHandle(arg.fh), arg.offset);
                empty(fs.fallocate(context, node, handle, offset, arg.length, arg.mode))
            }
            Operation::Lseek(arg) => {
                let handle = FileHandle(arg.fh);
                let offset = fs.lseek(context, node, handle, arg.offset, arg.whence)?;
                fixed(body, &LseekOut { offset })
            }
            Operation::CopyFileRange { arg, wide } => self.copy(at, arg, *wide, body),
            Operation::Ioctl { arg, data } => self.ioctl(at, arg, data, body),
            Operation::Poll(arg) => self.poll(at, arg, body),
            Operation::Bmap(arg) => {
                let block = fs.bmap(context, node, arg.block, arg.blocksize)?;
                fixed(body, &BmapOut { block })
            }
            Operation::Interrupt { unique } => {
                bump(&self.metrics.figures.interrupts);
                self.interrupts.interrupt(*unique);
                empty(Ok(()))
            }
            Operation::NotifyReply { arg, data } => {
                // A reply to RETRIEVE repeats the number of the notification.
                fs.retrieved(node, context.unique(), arg.offset, data);
                empty(Ok(()))
            }
            Operation::Destroy => empty(Ok(())),
            Operation::SetupMapping(arg) => self.set_up_mapping(context, node, arg),
            Operation::RemoveMapping { mappings } => self.remove_mappings(mappings.iter()),
            // The first INIT is not carried out here.
            Operation::Init { .. } => Err(self.invalid(Errno::EINVAL)),
        }
    }

    /// `.` and `..` are for LOOKUP only; the kernel does not send them otherwise.
    fn plain<'a>(&self, name: &Name<'a>) -> Result<Name<'a>> {
        if name.is_dot() || name.is_dot_dot() {
            Err(self.invalid(Errno::EINVAL))
        } else {
            Ok(*name)
        }
    }

    fn readlink(&self, context: &Context<'_>, node: NodeId, body: &mut [u8]) -> Result<Done> {
        let buffer = limited(body, LINK_TARGET_BYTES_MAX as u32);
        let room = buffer.len();
        let length = self.fs.readlink(context, node, buffer)?;
        if length > room {
            Err(Errno::ENAMETOOLONG)
        } else {
            Ok(Done::Body(length))
        }
    }

    fn read(
        &self,
        agreed: &Agreed,
        (context, node): At<'_>,
        arg: &ReadIn,
        body: &mut [u8],
    ) -> Result<Done> {
        check_offset(arg.offset)?;
        let size = arg.size.min(agreed.features.write_bytes_max);
        let reply = ReadReply::new(limited(body, size));
        let answer = self.fs.read(context, node, &read_args(arg), reply)?;
        match answer.0 {
            ReadSource::InPlace(length) => data(length, length),
            ReadSource::File(range) => Ok(Done::File(range)),
        }
    }

    fn write(
        &self,
        (context, node): At<'_>,
        arg: &WriteIn,
        source: WriteSource<'_>,
        body: &mut [u8],
    ) -> Result<Done> {
        if source.len() != arg.size as usize {
            return Err(self.invalid(Errno::EINVAL));
        }
        check_offset(arg.offset)?;
        let written = self
            .fs
            .write(context, node, &write_args(arg), source)?
            .min(source.len());
        // A request is far below 4 GiB.
        data(put_written(body, written as u32)?, written)
    }

    fn readdir(
        &self,
        (context, node): At<'_>,
        arg: &ReadIn,
        plus: bool,
        body: &mut [u8],
    ) -> Result<Done> {
        let mut sink = DirectorySink::new(limited(body, arg.size), plus);
        let result = self
            .fs
            .readdir(context, node, FileHandle(arg.fh), arg.offset, &mut sink);
        match result {
            // Lookups of entries that were written are counted: the reply carries them, and the error
            // recurs when the kernel asks for what follows.
            Err(errno) if sink.is_empty() => Err(errno),
            _ => Ok(Done::Body(sink.used())),
        }
    }

    fn copy(
        &self,
        (context, node): At<'_>,
        arg: &CopyFileRangeIn,
        wide: bool,
        body: &mut [u8],
    ) -> Result<Done> {
        let copy = copy_args(arg, wide);
        let copied = self.fs.copy_file_range(context, node, &copy)?;
        let bytes_copied = copied.min(copy.length);
        let body = if wide {
            put(body, &CopyFileRangeOut { bytes_copied })?
        } else {
            put_written(body, bytes_copied as u32)?
        };
        data(body, bytes_copied as usize)
    }

    fn setlk(&self, context: &Context<'_>, node: NodeId, arg: &LkIn, wait: bool) -> Result<Done> {
        let lock = lock_args(arg);
        if lock.start > lock.end && !lock.flock {
            return Err(Errno::EINVAL);
        }
        empty(self.fs.setlk(context, node, &lock, wait))
    }

    fn ioctl(
        &self,
        (context, node): At<'_>,
        arg: &IoctlIn,
        input: &[u8],
        body: &mut [u8],
    ) -> Result<Done> {
        // Unrestricted ioctls, which read and write the client's memory, exist for character devices
        // only.
        if IoctlFlags::from_bits_retain(arg.flags).contains(IoctlFlags::UNRESTRICTED) {
            return Err(Errno::ENOTTY);
        }
        let (head, rest) = body.split_at_mut(size_of::<IoctlOut>());
        let room = input.len().max(arg.out_size as usize);
        let data = rest.get_mut(..room).ok_or(Errno::EINVAL)?;
        data.fill(0);
        data[..input.len()].copy_from_slice(input);
        let handle = FileHandle(arg.fh);
        let (result, output) = self
            .fs
            .ioctl(context, node, handle, arg.cmd, data, input.len())?;
        let output = output.min(arg.out_size as usize);
        let out = IoctlOut {
            result,
            ..IoctlOut::default()
        };
        put(head, &out)?;
        Ok(Done::Body(size_of::<IoctlOut>() + output))
    }

    fn poll(&self, (context, node): At<'_>, arg: &PollIn, body: &mut [u8]) -> Result<Done> {
        let wakes = PollFlags::from_bits_retain(arg.flags).contains(PollFlags::SCHEDULE_NOTIFY);
        let context = context.with_poll_handle(wakes.then_some(PollHandle(arg.kh)));
        let revents = self
            .fs
            .poll(&context, node, FileHandle(arg.fh), arg.events)?;
        let padding = 0;
        fixed(body, &PollOut { revents, padding })
    }
}

/// The reply to a query of extended attributes: their size when no room was offered, else what
/// `get` writes.
fn xattr_answer(
    size: u32,
    body: &mut [u8],
    get: impl FnOnce(&mut [u8]) -> Result<usize>,
) -> Result<Done> {
    if size == 0 {
        let size = u32::try_from(get(&mut [])?).map_err(|_| Errno::E2BIG)?;
        return fixed(body, &GetxattrOut { size, padding: 0 });
    }
    let buffer = limited(body, size);
    let room = buffer.len();
    let length = get(buffer)?;
    if length > room {
        Err(Errno::ERANGE)
    } else {
        Ok(Done::Body(length))
    }
}

//! A [`Filesystem`] of fuser as one of the library: each method's arguments, and its answer.
//!
//! **Who may call what.** `init` and `destroy` have the file system alone; all other methods share it, or have it
//! alone too where the session has one thread ([`Shared::call`]), as a program may rely on that.
//!
//! **Forgets and releases** of answers that the kernel does not take are called by the library on the thread that
//! answers, which may hold locks of the program or run a method ([`is_busy`]). They are called on a thread of their
//! own then, which is rare: a request that was aborted while it was answered.

use crate::answer::{Answer, Busy, is_busy};
use crate::names::system_time;
use crate::notify::{Notifier, PollHandle, PollNotifier};
use crate::reply::{
    ReplyAttr, ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite,
    ReplyXattr,
};
use crate::{
    AccessFlags, CopyFileRangeFlags, FileHandle, Filesystem, ForgetOne, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, RenameFlags, Request, RequestId,
    SessionACL, TimeOrNow, WriteFlags,
};
use parking_lot::{Mutex, RwLock};
use std::ffi::{CStr, OsStr};
use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use thrufs::FileHandle as Handle;
use thrufs::{
    Attributes, Context, CopyArgs, DirectorySink, Entry, Errno, Features, FileSystem,
    FileSystemStatistics, LateAnswer, Listing, LockArgs, Name, Negotiation, NewNode, NodeId,
    OpenArgs, Opened, ReadAnswer, ReadArgs, ReadReply, ReleaseArgs, Result, Services, SetAttr,
    WriteArgs, WriteSource,
};

/// "No caller" in a request.
const NO_ID: u32 = u32::MAX;

/// What the library serves.
#[derive(Debug)]
pub struct Adapter<FS>(pub(crate) Arc<Shared<FS>>);

pub(crate) struct Shared<FS> {
    /// None after the end.
    fs: RwLock<Option<FS>>,
    one_at_a_time: bool,
    /// Set where the kernel lets everybody in and the file system does not: the owner, besides root.
    only_for: Option<u32>,
    services: OnceLock<Services>,
    /// What `init` failed with.
    refusal: Mutex<Option<io::Error>>,
}

impl<FS> fmt::Debug for Shared<FS> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Shared")
    }
}

impl<FS: Filesystem> Shared<FS> {
    pub(crate) fn new(fs: FS, acl: SessionACL, threads: Option<NonZeroUsize>) -> Arc<Shared<FS>> {
        let owner = rustix::process::geteuid().as_raw();
        Arc::new(Shared {
            fs: RwLock::new(Some(fs)),
            one_at_a_time: threads.is_none_or(|threads| threads.get() == 1),
            only_for: (acl == SessionACL::RootAndOwner).then_some(owner),
            services: OnceLock::new(),
            refusal: Mutex::default(),
        })
    }

    pub(crate) fn refusal(&self) -> Option<io::Error> {
        self.refusal.lock().take()
    }

    fn call(&self, method: impl FnOnce(&FS)) {
        let _busy = Busy::begin();
        if self.one_at_a_time {
            self.fs.write().as_ref().map(method);
        } else {
            self.fs.read().as_ref().map(method);
        }
    }

    fn services(&self) -> Services {
        let services = self.services.get().cloned();
        services.unwrap_or_else(Services::unavailable)
    }

    fn may_ask(&self, context: &Context<'_>) -> Result<()> {
        match (self.only_for, context.uid()) {
            (Some(owner), Some(uid)) if uid != owner && uid != 0 => Err(Errno::EACCES),
            _ => Ok(()),
        }
    }
}

impl<FS: Filesystem> Adapter<FS> {
    /// Calls a method without a reply.
    fn tell(&self, method: impl FnOnce(&FS) + Send + 'static) {
        let shared = Arc::clone(&self.0);
        elsewhere_if_busy(move || shared.call(method));
    }

    /// Calls a method, and returns its answer if it was given.
    fn ask<T: LateAnswer>(
        &self,
        context: &Context<'_>,
        method: impl FnOnce(&FS, &Request, Answer<T>),
    ) -> Result<T> {
        self.0.may_ask(context)?;
        self.ask_any(context, method)
    }

    /// The same, for a file that the caller has open.
    fn ask_any<T: LateAnswer>(
        &self,
        context: &Context<'_>,
        method: impl FnOnce(&FS, &Request, Answer<T>),
    ) -> Result<T> {
        let request = request(context);
        Answer::of(context, |answer| {
            self.0.call(|fs| method(fs, &request, answer));
        })
    }
}

fn request(context: &Context<'_>) -> Request {
    Request {
        unique: RequestId(context.unique().0),
        uid: context.uid().unwrap_or(NO_ID),
        gid: context.gid().unwrap_or(NO_ID),
        pid: context.pid(),
    }
}

/// Of the kernel itself.
fn no_request() -> Request {
    let unique = RequestId(0);
    Request {
        unique,
        uid: 0,
        gid: 0,
        pid: 0,
    }
}

fn ino(node: NodeId) -> INodeNo {
    INodeNo(node.0)
}

fn fh(handle: Handle) -> FileHandle {
    FileHandle(handle.0)
}

fn owner(owner: thrufs::LockOwner) -> LockOwner {
    LockOwner(owner.0)
}

fn os<'a>(name: &Name<'a>) -> &'a OsStr {
    OsStr::from_bytes(name.as_bytes())
}

fn os_of(name: &CStr) -> &OsStr {
    OsStr::from_bytes(name.to_bytes())
}

fn flags(flags: u32) -> OpenFlags {
    OpenFlags(flags.cast_signed())
}

fn put(value: &[u8], buffer: &mut [u8], too_long: Errno) -> Result<usize> {
    let place = buffer.get_mut(..value.len()).ok_or(too_long)?;
    place.copy_from_slice(value);
    Ok(value.len())
}

/// An empty buffer asks for the length.
fn put_xattr(value: &[u8], buffer: &mut [u8]) -> Result<usize> {
    match buffer {
        [] => Ok(value.len()),
        buffer => put(value, buffer, Errno::ERANGE),
    }
}

/// Runs what may take locks that this thread holds.
fn elsewhere_if_busy(work: impl FnOnce() + Send + 'static) {
    if is_busy() {
        std::thread::spawn(work);
    } else {
        work();
    }
}

macro_rules! methods {
    ($($ask:ident $name:ident($($argument:ident: $type:ty),*) -> $answer:ty = ($($value:expr),*), $reply:path;)*) => {$(
        fn $name(&self, context: &Context<'_>, $($argument: $type),*) -> Result<$answer> {
            self.$ask(context, |fs, req, answer| { fs.$name(req, $($value,)* $reply(answer)); })
        }
    )*};
}

#[rustfmt::skip]
impl<FS: Filesystem> FileSystem for Adapter<FS> {
    methods! {
        ask lookup(parent: NodeId, name: Name<'_>) -> Entry = (ino(parent), os(&name)), ReplyEntry::of;
        ask getattr(node: NodeId, handle: Option<Handle>) -> Attributes
            = (ino(node), handle.map(fh)), ReplyAttr::of;
        ask symlink(parent: NodeId, name: Name<'_>, target: &CStr) -> Entry
            = (ino(parent), os(&name), Path::new(os_of(target))), ReplyEntry::of;
        ask mknod(parent: NodeId, name: Name<'_>, new: &NewNode) -> Entry
            = (ino(parent), os(&name), new.mode, new.umask, new.rdev), ReplyEntry::of;
        ask mkdir(parent: NodeId, name: Name<'_>, new: &NewNode) -> Entry
            = (ino(parent), os(&name), new.mode, new.umask), ReplyEntry::of;
        ask unlink(parent: NodeId, name: Name<'_>) -> () = (ino(parent), os(&name)), ReplyEmpty::of;
        ask rmdir(parent: NodeId, name: Name<'_>) -> () = (ino(parent), os(&name)), ReplyEmpty::of;
        ask rename(from: NodeId, name: Name<'_>, to: NodeId, new_name: Name<'_>, flags: u32) -> ()
            = (ino(from), os(&name), ino(to), os(&new_name), RenameFlags::from_bits_retain(flags)), ReplyEmpty::of;
        ask link(node: NodeId, new_parent: NodeId, new_name: Name<'_>) -> Entry
            = (ino(node), ino(new_parent), os(&new_name)), ReplyEntry::of;
        ask flush(node: NodeId, handle: Handle, lock_owner: thrufs::LockOwner) -> ()
            = (ino(node), fh(handle), owner(lock_owner)), ReplyEmpty::of;
        ask_any fsync(node: NodeId, handle: Handle, data_only: bool) -> ()
            = (ino(node), fh(handle), data_only), ReplyEmpty::of;
        ask_any fsyncdir(node: NodeId, handle: Handle, data_only: bool) -> ()
            = (ino(node), fh(handle), data_only), ReplyEmpty::of;
        ask statfs(node: NodeId) -> FileSystemStatistics = (ino(node)), ReplyStatfs::of;
        ask setxattr(node: NodeId, name: &CStr, value: &[u8], flags: u32, _clears: bool) -> ()
            = (ino(node), os_of(name), value, flags.cast_signed(), 0), ReplyEmpty::of;
        ask removexattr(node: NodeId, name: &CStr) -> () = (ino(node), os_of(name)), ReplyEmpty::of;
        ask access(node: NodeId, mask: u32) -> ()
            = (ino(node), AccessFlags::from_bits_retain(mask.cast_signed())), ReplyEmpty::of;
        ask setlk(node: NodeId, lock: &LockArgs, wait: bool) -> ()
            = (ino(node), fh(lock.handle), owner(lock.owner), lock.start, lock.end, lock.kind.cast_signed(), lock.pid,
               wait), ReplyEmpty::of;
        ask fallocate(node: NodeId, handle: Handle, offset: u64, length: u64, mode: u32) -> ()
            = (ino(node), fh(handle), offset, length, mode.cast_signed()), ReplyEmpty::of;
        ask lseek(node: NodeId, handle: Handle, offset: u64, whence: u32) -> u64
            = (ino(node), fh(handle), offset.cast_signed(), whence.cast_signed()), ReplyLseek::of;
        ask bmap(node: NodeId, block: u64, block_bytes: u32) -> u64
            = (ino(node), block_bytes, block), ReplyBmap::of;
        ask copy_file_range(node: NodeId, copy: &CopyArgs) -> u64
            = (ino(node), fh(copy.handle_in), copy.offset_in, ino(copy.node_out), fh(copy.handle_out),
               copy.offset_out, copy.length, CopyFileRangeFlags::from_bits_retain(copy.flags)), ReplyWrite::copied;
    }

    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        let mut kernel = KernelConfig::new(negotiation);
        let mut fs = self.0.fs.write();
        let asked = fs.as_mut().map_or(Ok(()), |fs| fs.init(&no_request(), &mut kernel));
        if let Err(error) = asked {
            let number = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            *self.0.refusal.lock() = Some(error);
            return Err(number);
        }
        kernel.ask(negotiation);
        Ok(())
    }

    fn started(&self, _: &Features, services: Services) {
        let _ = self.0.services.set(services);
    }

    fn destroy(&self) {
        let shared = Arc::clone(&self.0);
        elsewhere_if_busy(move || {
            if let Some(mut fs) = shared.fs.write().take() {
                fs.destroy();
            }
        });
    }

    fn forget(&self, node: NodeId, nlookup: u64) {
        let nodeid = ino(node);
        self.tell(move |fs| fs.batch_forget(&no_request(), &[ForgetOne { nodeid, nlookup }]));
    }

    fn setattr(&self, context: &Context<'_>, node: NodeId, set: &SetAttr) -> Result<Attributes> {
        let [atime, mtime] = [set.atime, set.mtime].map(|time| time.map(TimeOrNow::from));
        let (ctime, handle) = (set.ctime.map(system_time), set.handle.map(fh));
        let SetAttr { mode, uid, gid, size, .. } = *set;
        self.ask(context, |fs, req, answer| {
            let reply = ReplyAttr::of(answer);
            fs.setattr(req, ino(node), mode, uid, gid, size, atime, mtime, ctime, handle, None, None, None, None, reply);
        })
    }

    fn readlink(&self, context: &Context<'_>, node: NodeId, buffer: &mut [u8]) -> Result<usize> {
        let target = self.ask(context, |fs, req, answer| {
            fs.readlink(req, ino(node), ReplyData::of(answer));
        })?;
        put(&target, buffer, Errno::ENAMETOOLONG)
    }

    fn open(&self, context: &Context<'_>, node: NodeId, args: &OpenArgs) -> Result<Opened> {
        let backings = self.0.services().backings;
        self.ask(context, |fs, req, answer| {
            fs.open(req, ino(node), flags(args.flags), ReplyOpen { answer, backings });
        })
    }

    fn opendir(&self, context: &Context<'_>, node: NodeId, args: &OpenArgs) -> Result<Opened> {
        let backings = self.0.services().backings;
        self.ask(context, |fs, req, answer| {
            fs.opendir(req, ino(node), flags(args.flags), ReplyOpen { answer, backings });
        })
    }

    fn create(
        &self, context: &Context<'_>, parent: NodeId, name: Name<'_>, new: &NewNode, args: &OpenArgs,
    ) -> Result<(Entry, Opened)> {
        let backings = self.0.services().backings;
        self.ask(context, |fs, req, answer| {
            let (flags, reply) = (args.flags.cast_signed(), ReplyCreate { answer, backings });
            fs.create(req, ino(parent), os(&name), new.mode, new.umask, flags, reply);
        })
    }

    fn read(&self, context: &Context<'_>, node: NodeId, args: &ReadArgs, reply: ReadReply<'_>) -> Result<ReadAnswer> {
        let size = reply.size() as u32;
        let data = self.ask_any(context, |fs, req, answer| {
            let (flags, owner) = (flags(args.flags), args.lock_owner.map(owner));
            fs.read(req, ino(node), fh(args.handle), args.offset, size, flags, owner, ReplyData::of(answer));
        })?;
        Ok(reply.bytes(&data))
    }

    fn write(&self, context: &Context<'_>, node: NodeId, args: &WriteArgs, data: WriteSource<'_>) -> Result<usize> {
        let mut copied = Vec::new();
        let data = data.as_bytes().unwrap_or_else(|| {
            copied.resize(data.len(), 0);
            data.copy_to(&mut copied);
            &copied
        });
        let mut how = WriteFlags::empty();
        how.set(WriteFlags::FUSE_WRITE_CACHE, args.from_cache);
        how.set(WriteFlags::FUSE_WRITE_LOCKOWNER, args.lock_owner.is_some());
        how.set(WriteFlags::FUSE_WRITE_KILL_SUIDGID, args.kill_suidgid);
        self.ask_any(context, |fs, req, answer| {
            let (flags, owner, reply) = (flags(args.flags), args.lock_owner.map(owner), ReplyWrite::of(answer));
            fs.write(req, ino(node), fh(args.handle), args.offset, data, how, flags, owner, reply);
        })
    }

    fn release(&self, context: &Context<'_>, node: NodeId, args: &ReleaseArgs) {
        let (request, args) = (request(context), *args);
        self.tell(move |fs| {
            let (flush, owner) = (args.flush.is_some(), args.flush.or(args.flock_unlock).map(owner));
            let (handle, flags) = (fh(args.handle), flags(args.flags));
            fs.release(&request, ino(node), handle, flags, owner, flush, ReplyEmpty::to_nobody());
        });
    }

    fn releasedir(&self, context: &Context<'_>, node: NodeId, args: &ReleaseArgs) {
        let (request, handle, flags) = (request(context), fh(args.handle), flags(args.flags));
        self.tell(move |fs| fs.releasedir(&request, ino(node), handle, flags, ReplyEmpty::to_nobody()));
    }

    fn readdir(
        &self, context: &Context<'_>, node: NodeId, handle: Handle, offset: u64, sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        let (node, handle, room) = (ino(node), fh(handle), sink.detached());
        let listing: Listing = self.ask_any(context, |fs, req, answer| {
            if room.is_plus() {
                fs.readdirplus(req, node, handle, offset, ReplyDirectoryPlus { answer, sink: room });
            } else {
                fs.readdir(req, node, handle, offset, ReplyDirectory { answer, sink: room });
            }
        })?;
        sink.put_listing(&listing);
        Ok(())
    }

    fn getxattr(&self, context: &Context<'_>, node: NodeId, name: &CStr, buffer: &mut [u8]) -> Result<usize> {
        let size = buffer.len() as u32;
        let value = self.ask(context, |fs, req, answer| {
            fs.getxattr(req, ino(node), os_of(name), size, ReplyXattr { answer, size });
        })?;
        put_xattr(&value, buffer)
    }

    fn listxattr(&self, context: &Context<'_>, node: NodeId, buffer: &mut [u8]) -> Result<usize> {
        let size = buffer.len() as u32;
        let names = self.ask(context, |fs, req, answer| {
            fs.listxattr(req, ino(node), size, ReplyXattr { answer, size });
        })?;
        put_xattr(&names, buffer)
    }

    fn getlk(&self, context: &Context<'_>, node: NodeId, lock: &LockArgs) -> Result<Option<LockArgs>> {
        self.ask(context, |fs, req, answer| {
            let LockArgs { start, end, pid, .. } = *lock;
            let (handle, owner, kind) = (fh(lock.handle), owner(lock.owner), lock.kind.cast_signed());
            let reply = ReplyLock { answer, asked: *lock };
            fs.getlk(req, ino(node), handle, owner, start, end, kind, pid, reply);
        })
    }

    fn ioctl(
        &self, context: &Context<'_>, node: NodeId, handle: Handle, command: u32, data: &mut [u8], input_length: usize,
    ) -> Result<(i32, usize)> {
        let size = data.len() as u32;
        let (result, output) = self.ask(context, |fs, req, answer| {
            let (flags, input) = (IoctlFlags::empty(), &data[..input_length]);
            fs.ioctl(req, ino(node), fh(handle), flags, command, input, size, ReplyIoctl::of(answer));
        })?;
        let length = output.len().min(data.len());
        data[..length].copy_from_slice(&output[..length]);
        Ok((result, length))
    }

    fn poll(&self, context: &Context<'_>, node: NodeId, handle: Handle, events: u32) -> Result<u32> {
        let waits = context.poll_handle();
        let (notifier, kernel) = (Notifier(self.0.services().notifier), PollHandle(waits.map_or(0, u64::from)));
        let wakes = PollNotifier { handle: kernel, notifier };
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::FUSE_POLL_SCHEDULE_NOTIFY, waits.is_some());
        let events = PollEvents::from_bits_retain(events);
        self.ask(context, |fs, req, answer| {
            fs.poll(req, ino(node), fh(handle), wakes, events, flags, ReplyPoll::of(answer));
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    struct Forgets(Sender<u64>);

    impl Filesystem for Forgets {
        fn forget(&self, _: &Request, ino: INodeNo, _: u64) {
            self.0.send(ino.0).unwrap();
        }
    }

    /// As when the kernel does not take an answer that a method gives to another request.
    #[test]
    fn a_forget_within_a_method_does_not_wait_for_it() {
        let (sender, forgotten) = channel();
        let adapter = Adapter(Shared::new(Forgets(sender), SessionACL::Owner, None));
        adapter.0.call(|_| {
            adapter.forget(NodeId(7), 1);
            assert!(forgotten.try_recv().is_err(), "not while the method runs");
        });
        assert_eq!(forgotten.recv(), Ok(7));
        adapter.forget(NodeId(8), 1);
        assert_eq!(forgotten.try_recv(), Ok(8), "at once, otherwise");
    }

    #[test]
    fn root_and_the_owner_may_ask_and_others_may_not() {
        let (sender, _) = channel();
        let shared = Shared::new(Forgets(sender), SessionACL::RootAndOwner, None);
        let owner = rustix::process::geteuid().as_raw();
        assert_eq!(shared.may_ask(&Context::of(owner, 0)), Ok(()));
        assert_eq!(shared.may_ask(&Context::of(0, 0)), Ok(()));
        assert_eq!(
            shared.may_ask(&Context::of(owner + 1, 0)),
            Err(Errno::EACCES)
        );
    }
}

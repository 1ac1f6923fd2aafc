//! A file system with fixed replies that records its calls.

use crate::attributes::{
    Attributes, CopyArgs, Entry, ExtendedAttributes, FileSystemStatistics, LockArgs, NewNode,
    OpenArgs, Opened, ReadArgs, ReleaseArgs, SetAttr, WriteArgs,
};
use crate::data::{LowerFile, NoWait, ReadAnswer, ReadReply, WriteSource};
use crate::{
    Context, Data, DirectorySink, Errno, Features, FileSystem, LateAnswer, Negotiation, Result,
    Services,
};
use std::ffi::CStr;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use thrufs_abi::layout::{Attr, Statx};
use thrufs_abi::{
    BackingId, FileHandle, Generation, InitFlags, LockOwner, Name, NodeId, OpenReplyFlags, Unique,
};

#[derive(Default)]
pub(super) struct RecordingFs {
    pub(super) fail: Option<Errno>,
    pub(super) refuse_init: Option<Errno>,
    pub(super) wants_writeback: bool,
    pub(super) defer: bool,
    /// Another thread gives the answers.
    pub(super) later: bool,
    pub(super) panic_on: Option<NodeId>,
    pub(super) wait_in_setlk: bool,
    pub(super) lower: Option<Arc<LowerFile>>,
    pub(super) calls: Mutex<Vec<String>>,
}

pub(super) const TIMEOUT: Duration = Duration::new(5, 500);

pub(super) fn lower_file(bytes: &[u8]) -> Arc<LowerFile> {
    use std::io::Write;
    let mut file = tempfile();
    file.write_all(bytes).unwrap();
    Arc::new(LowerFile::new(file.into(), NoWait::Unsupported))
}

fn tempfile() -> std::fs::File {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    rustix::fs::memfd_create("lower", flags).unwrap().into()
}

impl RecordingFs {
    pub(super) fn with(set: impl FnOnce(&mut RecordingFs)) -> RecordingFs {
        let mut fs = RecordingFs::default();
        set(&mut fs);
        fs
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    pub(super) fn last(&self) -> String {
        self.calls().pop().unwrap_or_default()
    }

    pub(super) fn clear(&self) {
        self.calls.lock().unwrap().clear();
    }

    fn note(&self, node: NodeId, call: String) {
        self.calls.lock().unwrap().push(call);
        assert_ne!(self.panic_on, Some(node), "as the test wants it");
    }

    fn answer<T: LateAnswer>(&self, context: &Context<'_>, answer: T) -> Result<T> {
        if !self.later {
            return Ok(answer);
        }
        let late = context.answer_later()?;
        std::thread::spawn(|| late.give(Ok(answer)));
        Err(Errno::LATER)
    }

    fn asked(&self, context: &Context<'_>, node: NodeId, call: String) -> Result<()> {
        if self.defer {
            context.require_blocking()?;
        }
        self.note(node, call);
        self.fail.map_or(Ok(()), Err)
    }
}

fn entry() -> Entry {
    Entry {
        node: NodeId(42),
        generation: Generation(3),
        attr: Attr {
            ino: 4200,
            mode: 0o100_644,
            ..Attr::default()
        },
        entry_timeout: TIMEOUT,
        attr_timeout: Duration::from_secs(1),
    }
}

fn attributes() -> Attributes {
    Attributes {
        attr: entry().attr,
        timeout: TIMEOUT,
    }
}

fn opened() -> Opened {
    Opened {
        handle: FileHandle(99),
        flags: OpenReplyFlags::KEEP_CACHE,
        backing: Some(BackingId(5)),
    }
}

fn list(offset: u64, sink: &mut DirectorySink<'_>) -> Result<()> {
    if offset == 500 {
        // An error behind an entry that was given out already.
        assert!(sink.entry_plus(&entry(), 501, 8, b"last"));
        return Err(Errno::EIO);
    }
    let _ = sink.entry(1, 1, 4, b".")
        && sink.entry_plus(&entry(), 2, 8, b"two")
        && sink.entry_plus(&entry(), 3, 8, b"three");
    Ok(())
}

fn text(name: &CStr) -> &str {
    name.to_str().unwrap()
}

fn named(name: Name<'_>) -> &str {
    text(name.as_cstr())
}

/// Methods that record their call, with the node that may panic, and then return a fixed reply.
macro_rules! recorded {
    ($(fn $method:ident($($argument:ident: $type:ty),*) -> $reply:ty {
        $node:ident, $($call:expr),+ => $value:expr
    })*) => {$(
        fn $method(&self, c: &Context<'_>, $($argument: $type),*) -> Result<$reply> {
            self.asked(c, $node, format!($($call),+))?;
            self.answer(c, $value)
        }
    )*};
}

impl FileSystem for RecordingFs {
    recorded! {
        fn getattr(node: NodeId, handle: Option<FileHandle>) -> Attributes {
            node, "getattr {node} {handle:?}" => attributes()
        }
        fn setattr(node: NodeId, set: &SetAttr) -> Attributes {
            node, "setattr {node} {:?} {}", set.size, set.kill_suidgid => attributes()
        }
        fn symlink(parent: NodeId, name: Name<'_>, target: &CStr) -> Entry {
            parent, "symlink {parent} {} {}", named(name), text(target) => entry()
        }
        fn mknod(parent: NodeId, name: Name<'_>, new: &NewNode) -> Entry {
            parent, "mknod {parent} {} {:o} {:o} {}", named(name), new.mode, new.umask, new.rdev => entry()
        }
        fn mkdir(parent: NodeId, name: Name<'_>, new: &NewNode) -> Entry {
            parent, "mkdir {parent} {} {:o} {:o}", named(name), new.mode, new.umask => entry()
        }
        fn unlink(parent: NodeId, name: Name<'_>) -> () {
            parent, "unlink {parent} {}", named(name) => ()
        }
        fn rmdir(parent: NodeId, name: Name<'_>) -> () {
            parent, "rmdir {parent} {}", named(name) => ()
        }
        fn rename(
            parent: NodeId, name: Name<'_>, new_parent: NodeId, new_name: Name<'_>, flags: u32
        ) -> () {
            parent, "rename {parent} {} {new_parent} {} {flags}", named(name), named(new_name) => ()
        }
        fn link(node: NodeId, new_parent: NodeId, new_name: Name<'_>) -> Entry {
            node, "link {node} {new_parent} {}", named(new_name) => entry()
        }
        fn open(node: NodeId, args: &OpenArgs) -> Opened {
            node, "open {node} {:#x} {}", args.flags, args.kill_suidgid => opened()
        }
        fn create(
            parent: NodeId, name: Name<'_>, new: &NewNode, args: &OpenArgs
        ) -> (Entry, Opened) {
            parent, "create {parent} {} {:o} {:#x}", named(name), new.mode, args.flags
                => (entry(), opened())
        }
        fn tmpfile(parent: NodeId, new: &NewNode, args: &OpenArgs) -> (Entry, Opened) {
            parent, "tmpfile {parent} {:o} {:#x}", new.mode, args.flags => (entry(), opened())
        }
        fn flush(node: NodeId, handle: FileHandle, owner: LockOwner) -> () {
            node, "flush {node} {handle} {owner}" => ()
        }
        fn fsync(node: NodeId, handle: FileHandle, data_only: bool) -> () {
            node, "fsync {node} {handle} {data_only}" => ()
        }
        fn opendir(node: NodeId, args: &OpenArgs) -> Opened {
            node, "opendir {node} {:#x}", args.flags => opened()
        }
        fn fsyncdir(node: NodeId, handle: FileHandle, data_only: bool) -> () {
            node, "fsyncdir {node} {handle} {data_only}" => ()
        }
        fn statfs(node: NodeId) -> FileSystemStatistics {
            node, "statfs {node}" => FileSystemStatistics {
                blocks: 1234,
                ..FileSystemStatistics::default()
            }
        }
        fn syncfs(node: NodeId) -> () {
            node, "syncfs {node}" => ()
        }
        fn setxattr(node: NodeId, name: &CStr, value: &[u8], flags: u32, clear: bool) -> () {
            node, "setxattr {node} {} {} {flags} {clear}", text(name), value.escape_ascii() => ()
        }
        fn removexattr(node: NodeId, name: &CStr) -> () {
            node, "removexattr {node} {}", text(name) => ()
        }
        fn access(node: NodeId, mask: u32) -> () {
            node, "access {node} {mask}" => ()
        }
        fn getlk(node: NodeId, lock: &LockArgs) -> Option<LockArgs> {
            node, "getlk {node} {}..{}", lock.start, lock.end
                => (lock.start > 0).then_some(LockArgs { pid: 77, ..*lock })
        }
        fn fallocate(node: NodeId, handle: FileHandle, offset: u64, length: u64, mode: u32) -> () {
            node, "fallocate {node} {handle} {offset} {length} {mode}" => ()
        }
        fn lseek(node: NodeId, handle: FileHandle, offset: u64, whence: u32) -> u64 {
            node, "lseek {node} {handle} {offset} {whence}" => 8192
        }
        fn copy_file_range(node: NodeId, copy: &CopyArgs) -> u64 {
            node, "copy_file_range {node} {} {}", copy.node_out, copy.length => copy.length
        }
        fn bmap(node: NodeId, block: u64, bytes: u32) -> u64 {
            node, "bmap {node} {block} {bytes}" => block.wrapping_add(1)
        }
    }

    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        negotiation.want(InitFlags::DO_READDIRPLUS | InitFlags::SETXATTR_EXT);
        if self.wants_writeback {
            negotiation.want(InitFlags::WRITEBACK_CACHE);
        }
        self.refuse_init.map_or(Ok(()), Err)
    }

    fn started(&self, _: &Features, _: Services) {
        self.note(NodeId(0), "started".to_owned());
    }

    fn save(&self, sink: &mut dyn io::Write) -> io::Result<()> {
        sink.write_all(b"saved by the fs")
    }

    fn restore(&self, source: &mut dyn io::Read) -> io::Result<()> {
        let mut state = [0; 15];
        source.read_exact(&mut state)?;
        let state = String::from_utf8_lossy(&state).into_owned();
        self.note(NodeId(0), format!("restore {state}"));
        Ok(())
    }

    fn recover(&self) -> io::Result<()> {
        self.note(NodeId(0), "recover".to_owned());
        Ok(())
    }

    fn lookup(&self, c: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        let (uid, gid, pid) = (c.uid(), c.gid(), c.pid());
        let call = format!("lookup {parent} {} {uid:?} {gid:?} {pid}", named(name));
        self.asked(c, parent, call)?;
        let absent = name.as_bytes() == b"absent";
        let entry = if absent {
            Entry::negative(TIMEOUT)
        } else {
            entry()
        };
        self.answer(c, entry)
    }

    fn forget(&self, node: NodeId, count: u64) {
        self.note(node, format!("forget {node} {count}"));
    }

    fn statx(
        &self,
        c: &Context<'_>,
        node: NodeId,
        handle: Option<FileHandle>,
        flags: u32,
        mask: u32,
    ) -> Result<ExtendedAttributes> {
        self.asked(c, node, format!("statx {node} {handle:?} {flags} {mask}"))?;
        let statx = Statx {
            mask,
            ino: 4200,
            ..Statx::default()
        };
        let timeout = TIMEOUT;
        self.answer(c, ExtendedAttributes { statx, timeout })
    }

    fn readlink(&self, c: &Context<'_>, node: NodeId, buffer: &mut [u8]) -> Result<usize> {
        self.asked(c, node, format!("readlink {node} {}", buffer.len()))?;
        if self.later {
            return self.answer(c, b"target".to_vec()).map(|_| 0);
        }
        buffer[..6].copy_from_slice(b"target");
        Ok(6)
    }

    fn read(
        &self,
        c: &Context<'_>,
        node: NodeId,
        args: &ReadArgs,
        reply: ReadReply<'_>,
    ) -> Result<ReadAnswer> {
        let ReadArgs {
            handle,
            offset,
            flags,
            lock_owner,
        } = args;
        let size = reply.size();
        let call = format!("read {node} {handle} {offset} {size} {flags} {lock_owner:?}");
        self.asked(c, node, call)?;
        match &self.lower {
            // More than was asked for.
            None if self.later => {
                let data = Data(vec![b'r'; size + 1].into_boxed_slice());
                self.answer(c, data).map(|_| reply.bytes(b""))
            }
            Some(lower) => Ok(reply.file(Arc::clone(lower), *offset)),
            None => reply.fill(|buffer| {
                buffer.fill(b'r');
                Ok(buffer.len())
            }),
        }
    }

    fn write(
        &self,
        c: &Context<'_>,
        node: NodeId,
        args: &WriteArgs,
        data: WriteSource<'_>,
    ) -> Result<usize> {
        let (offset, cache, kill) = (args.offset, args.from_cache, args.kill_suidgid);
        let owner = args.lock_owner;
        let call = format!(
            "write {node} {offset} {} {cache} {kill} {owner:?}",
            data.len()
        );
        self.asked(c, node, call)?;
        match &self.lower {
            Some(lower) => data.write_to(lower, offset),
            None => self.answer(c, data.len()),
        }
    }

    fn release(&self, _: &Context<'_>, node: NodeId, args: &ReleaseArgs) {
        self.note(node, format!("release {node} {}", args.handle));
    }

    fn readdir(
        &self,
        c: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        let call = format!("readdir {node} {handle} {offset} {}", sink.is_plus());
        self.asked(c, node, call)?;
        let fill = move |sink: &mut DirectorySink<'_>| list(offset, sink);
        if !self.later {
            return fill(sink);
        }
        let late = c.answer_later()?;
        std::thread::spawn(move || late.list(fill));
        Err(Errno::LATER)
    }

    fn releasedir(&self, _: &Context<'_>, node: NodeId, args: &ReleaseArgs) {
        self.note(node, format!("releasedir {node} {}", args.handle));
    }

    fn getxattr(
        &self,
        c: &Context<'_>,
        node: NodeId,
        name: &CStr,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let call = format!("getxattr {node} {} {}", text(name), buffer.len());
        self.asked(c, node, call)?;
        if self.later {
            return self.answer(c, b"value".to_vec()).map(|_| 0);
        }
        if !buffer.is_empty() {
            buffer
                .get_mut(..5)
                .ok_or(Errno::ERANGE)?
                .copy_from_slice(b"value");
        }
        Ok(5)
    }

    fn listxattr(&self, c: &Context<'_>, node: NodeId, buffer: &mut [u8]) -> Result<usize> {
        self.asked(c, node, format!("listxattr {node} {}", buffer.len()))?;
        // Careless: says more than fits.
        let names = b"user.a\0user.b\0";
        if self.later {
            return self.answer(c, names.to_vec()).map(|_| 0);
        }
        let length = buffer.len().min(names.len());
        buffer[..length].copy_from_slice(&names[..length]);
        Ok(names.len())
    }

    fn setlk(&self, c: &Context<'_>, node: NodeId, lock: &LockArgs, wait: bool) -> Result<()> {
        let LockArgs {
            flock,
            start,
            end,
            kind,
            owner,
            ..
        } = lock;
        let call = format!("setlk {node} {owner} {flock} {start}..{end} {kind} {wait}");
        self.asked(c, node, call)?;
        if !self.wait_in_setlk {
            return self.answer(c, ());
        }
        c.interruptible(|token| {
            while !token.is_set() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(Errno::EINTR)
        })
    }

    fn ioctl(
        &self,
        c: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        command: u32,
        data: &mut [u8],
        input_length: usize,
    ) -> Result<(i32, usize)> {
        let input = data[..input_length].escape_ascii().to_string();
        self.asked(c, node, format!("ioctl {node} {handle} {command} {input}"))?;
        data.reverse();
        let later = self.answer(c, (9, data.to_vec()));
        later.map(|(result, data)| (result, data.len()))
    }

    fn poll(&self, c: &Context<'_>, node: NodeId, handle: FileHandle, events: u32) -> Result<u32> {
        let wakes = c.poll_handle();
        self.asked(c, node, format!("poll {node} {handle} {events} {wakes:?}"))?;
        self.answer(c, events & 1)
    }

    fn retrieved(&self, node: NodeId, cookie: Unique, offset: u64, data: &[u8]) {
        let data = data.escape_ascii();
        self.note(node, format!("retrieved {node} {cookie} {offset} {data}"));
    }
}

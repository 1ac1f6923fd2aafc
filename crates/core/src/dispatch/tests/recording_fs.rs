//! A file system with fixed replies that records its calls.

use crate::attributes::{
    Attributes, CopyArgs, Entry, ExtendedAttributes, FileSystemStatistics, LockArgs, NewNode,
    OpenArgs, Opened, ReadArgs, ReleaseArgs, SetAttr, WriteArgs,
};
use crate::data::{LowerFile, NoWait, ReadAnswer, ReadReply, WriteSource};
use crate::{Context, DirectorySink, Errno, Features, FileSystem, Negotiation, Result, Services};
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

fn text(name: &CStr) -> &str {
    name.to_str().unwrap()
}

fn named(name: Name<'_>) -> &str {
    text(name.as_cstr())
}

impl FileSystem for RecordingFs {
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
        Ok(if absent {
            Entry::negative(TIMEOUT)
        } else {
            entry()
        })
    }

    fn forget(&self, node: NodeId, count: u64) {
        self.note(node, format!("forget {node} {count}"));
    }

    fn getattr(
        &self,
        c: &Context<'_>,
        node: NodeId,
        handle: Option<FileHandle>,
    ) -> Result<Attributes> {
        self.asked(c, node, format!("getattr {node} {handle:?}"))?;
        Ok(attributes())
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
        Ok(ExtendedAttributes {
            statx,
            timeout: TIMEOUT,
        })
    }

    fn setattr(&self, c: &Context<'_>, node: NodeId, set: &SetAttr) -> Result<Attributes> {
        let (size, kill) = (set.size, set.kill_suidgid);
        self.asked(c, node, format!("setattr {node} {size:?} {kill}"))?;
        Ok(attributes())
    }

    fn readlink(&self, c: &Context<'_>, node: NodeId, buffer: &mut [u8]) -> Result<usize> {
        self.asked(c, node, format!("readlink {node} {}", buffer.len()))?;
        buffer[..6].copy_from_slice(b"target");
        Ok(6)
    }

    fn symlink(
        &self,
        c: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        target: &CStr,
    ) -> Result<Entry> {
        let call = format!("symlink {parent} {} {}", named(name), text(target));
        self.asked(c, parent, call)?;
        Ok(entry())
    }

    fn mknod(
        &self,
        c: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: &NewNode,
    ) -> Result<Entry> {
        let NewNode { mode, umask, rdev } = new;
        let name = named(name);
        let call = format!("mknod {parent} {name} {mode:o} {umask:o} {rdev}");
        self.asked(c, parent, call)?;
        Ok(entry())
    }

    fn mkdir(
        &self,
        c: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: &NewNode,
    ) -> Result<Entry> {
        let name = named(name);
        let call = format!("mkdir {parent} {name} {:o} {:o}", new.mode, new.umask);
        self.asked(c, parent, call)?;
        Ok(entry())
    }

    fn unlink(&self, c: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        self.asked(c, parent, format!("unlink {parent} {}", named(name)))
    }

    fn rmdir(&self, c: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        self.asked(c, parent, format!("rmdir {parent} {}", named(name)))
    }

    fn rename(
        &self,
        c: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new_parent: NodeId,
        new_name: Name<'_>,
        flags: u32,
    ) -> Result<()> {
        let (name, new) = (named(name), named(new_name));
        let call = format!("rename {parent} {name} {new_parent} {new} {flags}");
        self.asked(c, parent, call)
    }

    fn link(
        &self,
        c: &Context<'_>,
        node: NodeId,
        new_parent: NodeId,
        new_name: Name<'_>,
    ) -> Result<Entry> {
        let call = format!("link {node} {new_parent} {}", named(new_name));
        self.asked(c, node, call)?;
        Ok(entry())
    }

    fn open(&self, c: &Context<'_>, node: NodeId, args: &OpenArgs) -> Result<Opened> {
        let call = format!("open {node} {:#x} {}", args.flags, args.kill_suidgid);
        self.asked(c, node, call)?;
        Ok(opened())
    }

    fn create(
        &self,
        c: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: &NewNode,
        args: &OpenArgs,
    ) -> Result<(Entry, Opened)> {
        let name = named(name);
        let call = format!("create {parent} {name} {:o} {:#x}", new.mode, args.flags);
        self.asked(c, parent, call)?;
        Ok((entry(), opened()))
    }

    fn tmpfile(
        &self,
        c: &Context<'_>,
        parent: NodeId,
        new: &NewNode,
        args: &OpenArgs,
    ) -> Result<(Entry, Opened)> {
        let call = format!("tmpfile {parent} {:o} {:#x}", new.mode, args.flags);
        self.asked(c, parent, call)?;
        Ok((entry(), opened()))
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
            None => Ok(data.len()),
        }
    }

    fn flush(
        &self,
        c: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        owner: LockOwner,
    ) -> Result<()> {
        self.asked(c, node, format!("flush {node} {handle} {owner}"))
    }

    fn release(&self, _: &Context<'_>, node: NodeId, args: &ReleaseArgs) {
        self.note(node, format!("release {node} {}", args.handle));
    }

    fn fsync(
        &self,
        c: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        data_only: bool,
    ) -> Result<()> {
        self.asked(c, node, format!("fsync {node} {handle} {data_only}"))
    }

    fn opendir(&self, c: &Context<'_>, node: NodeId, args: &OpenArgs) -> Result<Opened> {
        self.asked(c, node, format!("opendir {node} {:#x}", args.flags))?;
        Ok(opened())
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

    fn releasedir(&self, _: &Context<'_>, node: NodeId, args: &ReleaseArgs) {
        self.note(node, format!("releasedir {node} {}", args.handle));
    }

    fn fsyncdir(
        &self,
        c: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        data_only: bool,
    ) -> Result<()> {
        self.asked(c, node, format!("fsyncdir {node} {handle} {data_only}"))
    }

    fn statfs(&self, c: &Context<'_>, node: NodeId) -> Result<FileSystemStatistics> {
        self.asked(c, node, format!("statfs {node}"))?;
        Ok(FileSystemStatistics {
            blocks: 1234,
            ..FileSystemStatistics::default()
        })
    }

    fn syncfs(&self, c: &Context<'_>, node: NodeId) -> Result<()> {
        self.asked(c, node, format!("syncfs {node}"))
    }

    fn setxattr(
        &self,
        c: &Context<'_>,
        node: NodeId,
        name: &CStr,
        value: &[u8],
        flags: u32,
        clear: bool,
    ) -> Result<()> {
        let (name, value) = (text(name), value.escape_ascii());
        let call = format!("setxattr {node} {name} {value} {flags} {clear}");
        self.asked(c, node, call)
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
        let length = buffer.len().min(names.len());
        buffer[..length].copy_from_slice(&names[..length]);
        Ok(names.len())
    }

    fn removexattr(&self, c: &Context<'_>, node: NodeId, name: &CStr) -> Result<()> {
        self.asked(c, node, format!("removexattr {node} {}", text(name)))
    }

    fn access(&self, c: &Context<'_>, node: NodeId, mask: u32) -> Result<()> {
        self.asked(c, node, format!("access {node} {mask}"))
    }

    fn getlk(&self, c: &Context<'_>, node: NodeId, lock: &LockArgs) -> Result<Option<LockArgs>> {
        let call = format!("getlk {node} {}..{}", lock.start, lock.end);
        self.asked(c, node, call)?;
        Ok((lock.start > 0).then_some(LockArgs { pid: 77, ..*lock }))
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
            return Ok(());
        }
        c.interruptible(|token| {
            while !token.is_set() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(Errno::EINTR)
        })
    }

    fn fallocate(
        &self,
        c: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: u32,
    ) -> Result<()> {
        let call = format!("fallocate {node} {handle} {offset} {length} {mode}");
        self.asked(c, node, call)
    }

    fn lseek(
        &self,
        c: &Context<'_>,
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        whence: u32,
    ) -> Result<u64> {
        self.asked(c, node, format!("lseek {node} {handle} {offset} {whence}"))?;
        Ok(8192)
    }

    fn copy_file_range(&self, c: &Context<'_>, node: NodeId, copy: &CopyArgs) -> Result<u64> {
        let (to, length) = (copy.node_out, copy.length);
        self.asked(c, node, format!("copy_file_range {node} {to} {length}"))?;
        Ok(length)
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
        Ok((9, data.len()))
    }

    fn poll(&self, c: &Context<'_>, node: NodeId, handle: FileHandle, events: u32) -> Result<u32> {
        let wakes = c.poll_handle();
        self.asked(c, node, format!("poll {node} {handle} {events} {wakes:?}"))?;
        Ok(events & 1)
    }

    fn bmap(&self, c: &Context<'_>, node: NodeId, block: u64, bytes: u32) -> Result<u64> {
        self.asked(c, node, format!("bmap {node} {block} {bytes}"))?;
        Ok(block.wrapping_add(1))
    }

    fn retrieved(&self, node: NodeId, cookie: Unique, offset: u64, data: &[u8]) {
        let data = data.escape_ascii();
        self.note(node, format!("retrieved {node} {cookie} {offset} {data}"));
    }
}

//! One flat directory as a file system without state: nodes and open files are inode numbers.

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, XattrFlags, linkat, mkdirat, openat, renameat_with,
    symlinkat, unlinkat,
};
use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use thrufs::layout::Attr;
use thrufs::{
    Attributes, Context, Entry, Errno, FileHandle, FileSystem, Generation, Name, NewNode, NodeId,
    OpenArgs, OpenReplyFlags, Opened, ReadAnswer, ReadArgs, ReadReply, Result, WriteArgs,
    WriteSource,
};
use thrufs_testing::Random;

/// Node ids are inode numbers and this; 1 is the root's.
const FIRST: u64 = 2;

/// Longest delay from a change to its answer, in microseconds.
const DAWDLE_MAX: usize = 700;

pub struct Plain {
    root: PathBuf,
    random: Mutex<Random>,
}

fn attr(path: &Path) -> io::Result<Attr> {
    let found = fs::symlink_metadata(path)?;
    Ok(Attr {
        ino: found.ino(),
        size: found.size(),
        ctime: found.ctime() as u64,
        ctimensec: found.ctime_nsec() as u32,
        mode: found.mode(),
        nlink: found.nlink() as u32,
        ..Attr::default()
    })
}

impl Plain {
    pub fn new(root: &Path) -> Plain {
        Plain {
            root: root.to_owned(),
            random: Mutex::new(Random(std::process::id().into())),
        }
    }

    /// Where a death leaves most in doubt.
    fn dawdle(&self) {
        let random = self.random.lock().unwrap().below(DAWDLE_MAX);
        std::thread::sleep(Duration::from_micros(random as u64));
    }

    fn at(&self, parent: NodeId, name: Name<'_>) -> Result<PathBuf> {
        if parent != NodeId::ROOT {
            return Err(Errno::ENOTDIR);
        }
        Ok(self.root.join(std::ffi::OsStr::from_bytes(name.as_bytes())))
    }

    fn path(&self, node: NodeId) -> Result<PathBuf> {
        if node == NodeId::ROOT {
            return Ok(self.root.clone());
        }
        use std::os::unix::fs::DirEntryExt;
        let mut entries = fs::read_dir(&self.root)?.filter_map(io::Result::ok);
        let found = entries.find(|entry| entry.ino() + FIRST == node.0);
        found.map(|entry| entry.path()).ok_or(Errno::ESTALE)
    }

    fn entry(&self, path: &Path) -> Result<Entry> {
        let attr = attr(path)?;
        Ok(Entry {
            node: NodeId(attr.ino + FIRST),
            generation: Generation(0),
            attr,
            entry_timeout: Duration::ZERO,
            attr_timeout: Duration::ZERO,
        })
    }

    fn opened(&self, node: NodeId) -> Opened {
        Opened {
            handle: FileHandle(node.0),
            flags: OpenReplyFlags::empty(),
            backing: None,
        }
    }
}

impl FileSystem for Plain {
    fn recover(&self) -> io::Result<()> {
        Ok(())
    }

    fn lookup(&self, _: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        self.entry(&self.at(parent, name)?)
    }

    fn getattr(&self, _: &Context<'_>, node: NodeId, _: Option<FileHandle>) -> Result<Attributes> {
        Ok(Attributes {
            attr: attr(&self.path(node)?)?,
            timeout: Duration::ZERO,
        })
    }

    fn readlink(&self, _: &Context<'_>, node: NodeId, buffer: &mut [u8]) -> Result<usize> {
        let target = fs::read_link(self.path(node)?)?;
        let bytes = target.as_os_str().as_bytes();
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        Ok(length)
    }

    fn symlink(
        &self,
        _: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        target: &CStr,
    ) -> Result<Entry> {
        let path = self.at(parent, name)?;
        self.dawdle();
        symlinkat(target, CWD, &path)?;
        self.dawdle();
        self.entry(&path)
    }

    fn mkdir(&self, _: &Context<'_>, parent: NodeId, name: Name<'_>, _: &NewNode) -> Result<Entry> {
        let path = self.at(parent, name)?;
        self.dawdle();
        let made = mkdirat(CWD, &path, Mode::RWXU);
        self.dawdle();
        made?;
        self.entry(&path)
    }

    fn unlink(&self, _: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        let path = self.at(parent, name)?;
        self.dawdle();
        unlinkat(CWD, &path, AtFlags::empty())?;
        self.dawdle();
        Ok(())
    }

    fn rmdir(&self, _: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        let path = self.at(parent, name)?;
        unlinkat(CWD, &path, AtFlags::REMOVEDIR)?;
        self.dawdle();
        Ok(())
    }

    fn rename(
        &self,
        _: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new_parent: NodeId,
        new_name: Name<'_>,
        flags: u32,
    ) -> Result<()> {
        let (old, new) = (self.at(parent, name)?, self.at(new_parent, new_name)?);
        self.dawdle();
        renameat_with(CWD, &old, CWD, &new, RenameFlags::from_bits_retain(flags))?;
        self.dawdle();
        Ok(())
    }

    fn link(
        &self,
        _: &Context<'_>,
        node: NodeId,
        new_parent: NodeId,
        new_name: Name<'_>,
    ) -> Result<Entry> {
        let (old, new) = (self.path(node)?, self.at(new_parent, new_name)?);
        linkat(CWD, &old, CWD, &new, AtFlags::empty())?;
        self.dawdle();
        self.entry(&new)
    }

    fn open(&self, _: &Context<'_>, node: NodeId, args: &OpenArgs) -> Result<Opened> {
        if args.flags as i32 & libc::O_TRUNC != 0 {
            fs::File::create(self.path(node)?)?;
        }
        Ok(self.opened(node))
    }

    fn create(
        &self,
        _: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        _: &NewNode,
        _: &OpenArgs,
    ) -> Result<(Entry, Opened)> {
        let path = self.at(parent, name)?;
        self.dawdle();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = openat(CWD, &path, flags, Mode::RUSR | Mode::WUSR);
        self.dawdle();
        made?;
        let entry = self.entry(&path)?;
        Ok((entry, self.opened(entry.node)))
    }

    fn read(
        &self,
        _: &Context<'_>,
        node: NodeId,
        args: &ReadArgs,
        reply: ReadReply<'_>,
    ) -> Result<ReadAnswer> {
        let file = fs::File::open(self.path(node)?)?;
        reply.fill(|buffer| Ok(file.read_at(buffer, args.offset)?))
    }

    fn write(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &WriteArgs,
        data: WriteSource<'_>,
    ) -> Result<usize> {
        if args.offset & 1 == 1 && !context.may_block() {
            // Deferred, to have answers wait in the pool.
            return Err(Errno::DEFER);
        }
        let file = fs::OpenOptions::new().write(true).open(self.path(node)?)?;
        let mut bytes = vec![0; data.len()];
        let length = data.copy_to(&mut bytes);
        file.write_all_at(&bytes[..length], args.offset)?;
        self.dawdle();
        Ok(length)
    }

    fn setxattr(
        &self,
        _: &Context<'_>,
        node: NodeId,
        name: &CStr,
        value: &[u8],
        flags: u32,
        _: bool,
    ) -> Result<()> {
        let flags = XattrFlags::from_bits_retain(flags);
        rustix::fs::setxattr(self.path(node)?, name, value, flags)?;
        self.dawdle();
        Ok(())
    }

    fn getxattr(
        &self,
        _: &Context<'_>,
        node: NodeId,
        name: &CStr,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let mut value = [0; 256];
        let length = rustix::fs::getxattr(self.path(node)?, name, &mut value)?;
        let copied = length.min(buffer.len());
        buffer[..copied].copy_from_slice(&value[..copied]);
        Ok(length)
    }
}

//! A file system in memory: `cargo run --example memory -- MOUNTPOINT`, until it is unmounted.
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use thrufs::{
    Attr, Attributes, Context, DirectorySink, Entry, Errno, FileHandle, FileSystem, MountOptions,
    Name, NewNode, NodeId, ReadAnswer, ReadArgs, ReadReply, Result, SessionConfig, SetAttr,
    SetTime, WriteArgs, WriteSource, mount,
};

/// All changes come through the kernel, so replies are valid for long.
const VALID: Duration = Duration::from_secs(3600);
const DIRECTORY: u32 = 0o040_000;

#[derive(Default)]
struct Node {
    attr: Attr,
    data: Vec<u8>,
    names: BTreeMap<Vec<u8>, NodeId>,
}

/// Nodes by number. A larger file system would drop those without names on `forget`.
struct Memory(Mutex<Vec<Node>>);

#[rustfmt::skip]
impl Memory {
    fn new() -> Memory {
        let root = Node { attr: Attr::directory(1), ..Node::default() };
        Memory(Mutex::new(vec![Node::default(), root]))
    }
    fn nodes(&self) -> MutexGuard<'_, Vec<Node>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn remove(&self, parent: NodeId, name: Name, directory: bool) -> Result<()> {
        let mut nodes = self.nodes();
        let child = *at(&mut nodes, parent)?.names.get(name.as_bytes()).ok_or(Errno::ENOENT)?;
        let node = at(&mut nodes, child)?;
        match (directory, node.attr.mode & DIRECTORY != 0) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            _ if !node.names.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => node.attr.nlink = 0,
        }
        at(&mut nodes, parent)?.names.remove(name.as_bytes());
        Ok(())
    }
}

fn at(nodes: &mut [Node], node: NodeId) -> Result<&mut Node> {
    nodes.get_mut(node.0 as usize).ok_or(Errno::ESTALE)
}

fn now() -> u64 {
    SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0, |elapsed| elapsed.as_secs())
}

#[rustfmt::skip]
impl FileSystem for Memory {
    fn lookup(&self, _: &Context, parent: NodeId, name: Name) -> Result<Entry> {
        let mut nodes = self.nodes();
        match at(&mut nodes, parent)?.names.get(name.as_bytes()).copied() {
            Some(child) => Ok(Entry::new(at(&mut nodes, child)?.attr, VALID)),
            None => Ok(Entry::negative(VALID)),
        }
    }
    fn getattr(&self, _: &Context, node: NodeId, _: Option<FileHandle>) -> Result<Attributes> {
        Ok(Attributes { attr: at(&mut self.nodes(), node)?.attr, timeout: VALID })
    }
    fn setattr(&self, _: &Context, node: NodeId, set: &SetAttr) -> Result<Attributes> {
        let mut nodes = self.nodes();
        let Node { attr, data, .. } = at(&mut nodes, node)?;
        attr.mode = set.mode.map_or(attr.mode, |mode| attr.mode & !0o7777 | mode & 0o7777);
        (attr.uid, attr.gid) = (set.uid.unwrap_or(attr.uid), set.gid.unwrap_or(attr.gid));
        attr.size = set.size.unwrap_or(attr.size);
        data.resize(attr.size as usize, 0);
        match set.mtime {
            Some(SetTime::Now) => attr.mtime = now(),
            Some(SetTime::At(time)) => attr.mtime = time.seconds as u64,
            None => {}
        }
        Ok(Attributes { attr: *attr, timeout: VALID })
    }
    // Files need no open (the default of `open` says so): one is made, then used.
    fn mknod(&self, c: &Context, parent: NodeId, name: Name, new: &NewNode) -> Result<Entry> {
        let (mut nodes, time) = (self.nodes(), now());
        let (ino, mode, nlink) = (nodes.len() as u64, new.mode, 1);
        let (uid, gid) = (c.uid().unwrap_or(0), c.gid().unwrap_or(0));
        let attr = Attr { ino, mode, nlink, uid, gid, mtime: time, ..Attr::default() };
        at(&mut nodes, parent)?.names.insert(name.as_bytes().to_vec(), NodeId(ino));
        nodes.push(Node { attr, ..Node::default() });
        Ok(Entry::new(attr, VALID))
    }
    fn mkdir(&self, c: &Context, parent: NodeId, name: Name, new: &NewNode) -> Result<Entry> {
        self.mknod(c, parent, name, new)
    }
    fn unlink(&self, _: &Context, parent: NodeId, name: Name) -> Result<()> {
        self.remove(parent, name, false)
    }
    fn rmdir(&self, _: &Context, parent: NodeId, name: Name) -> Result<()> {
        self.remove(parent, name, true)
    }
    fn rename(&self, _: &Context, from: NodeId, name: Name, to: NodeId, new: Name, flags: u32) -> Result<()> {
        let mut nodes = self.nodes();
        let moved = *at(&mut nodes, from)?.names.get(name.as_bytes()).ok_or(Errno::ENOENT)?;
        match at(&mut nodes, to)?.names.get(new.as_bytes()).copied() {
            _ if flags != 0 => return Err(Errno::EINVAL),
            Some(old) if !at(&mut nodes, old)?.names.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => at(&mut nodes, from)?.names.remove(name.as_bytes()),
        };
        at(&mut nodes, to)?.names.insert(new.as_bytes().to_vec(), moved);
        Ok(())
    }
    fn read(&self, _: &Context, node: NodeId, args: &ReadArgs, reply: ReadReply) -> Result<ReadAnswer> {
        let mut nodes = self.nodes();
        let data = &at(&mut nodes, node)?.data;
        Ok(reply.bytes(&data[data.len().min(args.offset as usize)..]))
    }
    fn write(&self, _: &Context, node: NodeId, args: &WriteArgs, source: WriteSource) -> Result<usize> {
        let (mut nodes, start) = (self.nodes(), args.offset as usize);
        let Node { attr, data, .. } = at(&mut nodes, node)?;
        data.resize(data.len().max(start + source.len()), 0);
        (attr.size, attr.mtime) = (data.len() as u64, now());
        Ok(source.copy_to(&mut data[start..]))
    }
    fn readdir(&self, _: &Context, node: NodeId, _: FileHandle, offset: u64, sink: &mut DirectorySink) -> Result<()> {
        for (next, (name, child)) in (1..).zip(&at(&mut self.nodes(), node)?.names).skip(offset as usize) {
            if !sink.entry(child.0, next, 0, name) { break; }
        }
        Ok(())
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let target = std::env::args().nth(1).ok_or("usage: memory MOUNTPOINT")?;
    let options = MountOptions::new("memory");
    let session = mount(Memory::new(), target, &options, SessionConfig::default())?;
    println!("{} serves", session.target().display());
    session.join()?;
    Ok(())
}

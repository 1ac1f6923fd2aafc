//! A file system in memory: `cargo run --example memory -- MOUNTPOINT`, then unmount it.
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use thrufs::layout::Attr;
use thrufs::*;

/// Long: nobody changes anything beneath, and the kernel sees what goes through it.
const VALID: Duration = Duration::from_secs(3600);
const DIRECTORY: u32 = 0o40000;

#[derive(Clone, Default)]
struct Node {
    attr: Attr,
    data: Vec<u8>,
    names: BTreeMap<Vec<u8>, u64>,
}

/// Inodes by number. A real file system would free those that are forgotten and have no names.
struct Memory(Mutex<Vec<Node>>);

impl Memory {
    fn new() -> Memory {
        let attr = Attr {
            ino: 1,
            mode: DIRECTORY | 0o755,
            nlink: 2,
            ..Attr::default()
        };
        Memory(Mutex::new(vec![
            Node::default(),
            Node {
                attr,
                ..Node::default()
            },
        ]))
    }
    fn nodes(&self) -> MutexGuard<'_, Vec<Node>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn make(&self, c: &Context<'_>, parent: NodeId, name: Name<'_>, mode: u32) -> Result<Entry> {
        let (mut nodes, now) = (self.nodes(), now());
        let ino = nodes.len() as u64;
        if at(&mut nodes, parent)?.names.contains_key(name.as_bytes()) {
            return Err(Errno::EEXIST);
        }
        let attr = Attr {
            ino,
            mode,
            nlink: 1,
            atime: now,
            mtime: now,
            ctime: now,
            ..Attr::default()
        };
        let attr = Attr {
            uid: c.uid().unwrap_or(0),
            gid: c.gid().unwrap_or(0),
            ..attr
        };
        nodes.push(Node {
            attr,
            ..Node::default()
        });
        at(&mut nodes, parent)?
            .names
            .insert(name.as_bytes().to_vec(), ino);
        Ok(entry(attr))
    }
    fn remove(&self, parent: NodeId, name: Name<'_>, directory: bool) -> Result<()> {
        let mut nodes = self.nodes();
        let parent_names = &at(&mut nodes, parent)?.names;
        let child = NodeId(*parent_names.get(name.as_bytes()).ok_or(Errno::ENOENT)?);
        let node = at(&mut nodes, child)?;
        match (directory, node.attr.mode & DIRECTORY != 0) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            (true, true) if !node.names.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => node.attr.nlink = 0,
        }
        at(&mut nodes, parent)?.names.remove(name.as_bytes());
        Ok(())
    }
}

fn at(nodes: &mut [Node], node: NodeId) -> Result<&mut Node> {
    nodes
        .get_mut(node.0 as usize)
        .filter(|_| node.0 > 0)
        .ok_or(Errno::ESTALE)
}
fn entry(attr: Attr) -> Entry {
    let (node, generation) = (NodeId(attr.ino), Generation(0));
    Entry {
        node,
        generation,
        attr,
        entry_timeout: VALID,
        attr_timeout: VALID,
    }
}
fn now() -> u64 {
    SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0, |elapsed| elapsed.as_secs())
}
fn answer(attr: Attr) -> Result<Attributes> {
    Ok(Attributes {
        attr,
        timeout: VALID,
    })
}

impl FileSystem for Memory {
    fn lookup(&self, _: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        let mut nodes = self.nodes();
        match at(&mut nodes, parent)?.names.get(name.as_bytes()).copied() {
            Some(child) => Ok(entry(at(&mut nodes, NodeId(child))?.attr)),
            None => Ok(Entry::negative(VALID)),
        }
    }
    fn getattr(&self, _: &Context<'_>, node: NodeId, _: Option<FileHandle>) -> Result<Attributes> {
        answer(at(&mut self.nodes(), node)?.attr)
    }
    fn setattr(&self, _: &Context<'_>, node: NodeId, set: &SetAttr) -> Result<Attributes> {
        let mut nodes = self.nodes();
        let Node { attr, data, .. } = at(&mut nodes, node)?;
        attr.mode = set
            .mode
            .map_or(attr.mode, |mode| attr.mode & !0o7777 | mode & 0o7777);
        (attr.uid, attr.gid) = (set.uid.unwrap_or(attr.uid), set.gid.unwrap_or(attr.gid));
        if let Some(size) = set.size {
            data.resize(usize::try_from(size).map_err(|_| Errno::EFBIG)?, 0);
            attr.size = size;
        }
        for (field, time) in [(&mut attr.atime, set.atime), (&mut attr.mtime, set.mtime)] {
            match time {
                Some(SetTime::Now) => *field = now(),
                Some(SetTime::At(time)) => *field = time.seconds as u64,
                None => {}
            }
        }
        answer(*attr)
    }
    fn mkdir(
        &self,
        c: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        new: &NewNode,
    ) -> Result<Entry> {
        self.make(c, parent, name, new.mode)
    }
    fn create(
        &self,
        c: &Context<'_>,
        p: NodeId,
        name: Name<'_>,
        new: &NewNode,
        _: &OpenArgs,
    ) -> Result<(Entry, Opened)> {
        Ok((self.make(c, p, name, new.mode)?, Opened::default()))
    }
    fn unlink(&self, _: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        self.remove(parent, name, false)
    }
    fn rmdir(&self, _: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        self.remove(parent, name, true)
    }
    fn rename(
        &self,
        _: &Context<'_>,
        from: NodeId,
        name: Name<'_>,
        to: NodeId,
        new: Name<'_>,
        flags: u32,
    ) -> Result<()> {
        let mut nodes = self.nodes();
        let moved = *at(&mut nodes, from)?
            .names
            .get(name.as_bytes())
            .ok_or(Errno::ENOENT)?;
        if let (true, Some(&old)) = (flags == 0, at(&mut nodes, to)?.names.get(new.as_bytes())) {
            let old = at(&mut nodes, NodeId(old))?;
            if !old.names.is_empty() {
                return Err(Errno::ENOTEMPTY);
            }
        } else if flags != 0 {
            return Err(Errno::EINVAL);
        }
        at(&mut nodes, from)?.names.remove(name.as_bytes());
        at(&mut nodes, to)?
            .names
            .insert(new.as_bytes().to_vec(), moved);
        Ok(())
    }
    fn open(&self, _: &Context<'_>, _: NodeId, _: &OpenArgs) -> Result<Opened> {
        let flags = OpenReplyFlags::KEEP_CACHE | OpenReplyFlags::NOFLUSH;
        Ok(Opened {
            flags,
            ..Opened::default()
        })
    }
    fn read(
        &self,
        _: &Context<'_>,
        node: NodeId,
        args: &ReadArgs,
        reply: ReadReply<'_>,
    ) -> Result<ReadAnswer> {
        let mut nodes = self.nodes();
        let data = &at(&mut nodes, node)?.data;
        Ok(reply.bytes(&data[data.len().min(args.offset as usize)..]))
    }
    fn write(
        &self,
        _: &Context<'_>,
        node: NodeId,
        args: &WriteArgs,
        source: WriteSource<'_>,
    ) -> Result<usize> {
        let (mut nodes, start) = (self.nodes(), args.offset as usize);
        let Node { attr, data, .. } = at(&mut nodes, node)?;
        let end = start.checked_add(source.len()).ok_or(Errno::EFBIG)?;
        data.resize(data.len().max(end), 0);
        (attr.size, attr.mtime) = (data.len() as u64, now());
        Ok(source.copy_to(&mut data[start..end]))
    }
    fn readdir(
        &self,
        _: &Context<'_>,
        node: NodeId,
        _: FileHandle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        for (next, (name, &ino)) in (1..)
            .zip(&at(&mut self.nodes(), node)?.names)
            .skip(offset as usize)
        {
            if !sink.entry(ino, next, 0, name) {
                break;
            }
        }
        Ok(())
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let Some(target) = std::env::args().nth(1) else {
        return Err("usage: memory MOUNTPOINT".into());
    };
    let session = mount(
        Memory::new(),
        target,
        &MountOptions::new("memory"),
        SessionConfig::default(),
    )?;
    println!("{} serves", session.target().display());
    session.join()?;
    Ok(())
}

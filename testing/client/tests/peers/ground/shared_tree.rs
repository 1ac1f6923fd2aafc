//! A minimal file system whose sessions can migrate: a tree that several servers share, and sessions with node
//! ids of some of its files.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use thrufs::layout::Attr;
use thrufs::{
    Attributes, Context, Entry, Errno, FileHandle, FileSystem, Generation, InitFlags, LockArgs,
    Name, Negotiation, NewNode, NodeId, OpenArgs, OpenReplyFlags, Opened, ReadAnswer, ReadArgs,
    ReadReply, Result, WriteArgs, WriteSource,
};

const VALID: Duration = Duration::from_secs(1);

/// Time limit of all waits in these tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reads by this handle block until the latch opens.
pub const SLOW: u64 = 99;

/// Blocks until it is opened.
#[derive(Default)]
pub struct Latch {
    open: Mutex<bool>,
    changed: Condvar,
}

impl Latch {
    pub fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn is_open(&self) -> bool {
        *self.open.lock().unwrap()
    }

    fn wait(&self) {
        let open = self.open.lock().unwrap();
        let waited = self
            .changed
            .wait_timeout_while(open, PATIENCE, |open| !*open);
        drop(waited.unwrap());
    }
}

type Bytes = Arc<Mutex<Vec<u8>>>;

/// The tree that all servers share.
#[derive(Default)]
pub struct Tree {
    files: Mutex<BTreeMap<Vec<u8>, Bytes>>,
    pub slow: Latch,
    /// Locks conflict until this is open.
    pub lock: Latch,
    pub lock_waiters: AtomicUsize,
    pub granted: AtomicUsize,
    pub restored: AtomicUsize,
    /// Saving a session fails.
    pub stays: AtomicBool,
}

impl Tree {
    fn file(&self, name: &[u8]) -> Result<Bytes> {
        let files = self.files.lock().unwrap();
        files.get(name).map(Arc::clone).ok_or(Errno::ENOENT)
    }
}

pub struct SharedTreeFs {
    tree: Arc<Tree>,
    /// Names by node id, from 2 on.
    names: Mutex<Vec<Vec<u8>>>,
}

impl SharedTreeFs {
    pub fn make(
        tree: &Arc<Tree>,
    ) -> impl Fn() -> io::Result<Arc<SharedTreeFs>> + Send + Sync + use<> {
        let tree = Arc::clone(tree);
        move || {
            Ok(Arc::new(SharedTreeFs {
                tree: Arc::clone(&tree),
                names: Mutex::default(),
            }))
        }
    }

    fn entry(&self, name: &[u8]) -> Result<Entry> {
        self.tree.file(name)?;
        let mut names = self.names.lock().unwrap();
        let place = names.iter().position(|other| other == name);
        let place = place.unwrap_or_else(|| {
            names.push(name.to_vec());
            names.len() - 1
        });
        drop(names);
        let node = place as u64 + 2;
        Ok(Entry {
            node: NodeId(node),
            generation: Generation(0),
            attr: self.attr(node)?,
            entry_timeout: VALID,
            attr_timeout: VALID,
        })
    }

    fn of(&self, node: u64) -> Result<Bytes> {
        let place = node.checked_sub(2).ok_or(Errno::EISDIR)?;
        let name = self.names.lock().unwrap().get(place as usize).cloned();
        self.tree.file(&name.ok_or(Errno::ESTALE)?)
    }

    fn attr(&self, node: u64) -> Result<Attr> {
        let size = self.of(node)?.lock().unwrap().len() as u64;
        Ok(Attr {
            ino: node,
            mode: 0o100_644,
            nlink: 1,
            size,
            ..Attr::default()
        })
    }
}

impl FileSystem for SharedTreeFs {
    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        negotiation.want(InitFlags::POSIX_LOCKS);
        Ok(())
    }

    fn save(&self, sink: &mut dyn Write) -> io::Result<()> {
        if self.tree.stays.load(Ordering::SeqCst) {
            return Err(io::Error::other("as the test wants it"));
        }
        for name in self.names.lock().unwrap().iter() {
            sink.write_all(&[name.len() as u8])?;
            sink.write_all(name)?;
        }
        sink.write_all(&[0])
    }

    fn restore(&self, source: &mut dyn Read) -> io::Result<()> {
        let mut names = self.names.lock().unwrap();
        loop {
            let mut length = [0];
            source.read_exact(&mut length)?;
            if length == [0] {
                self.tree.restored.fetch_add(1, Ordering::SeqCst);
                return Ok(());
            }
            let mut name = vec![0; length[0].into()];
            source.read_exact(&mut name)?;
            names.push(name);
        }
    }

    fn lookup(&self, _: &Context<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        self.entry(name.as_bytes())
    }

    fn getattr(&self, _: &Context<'_>, node: NodeId, _: Option<FileHandle>) -> Result<Attributes> {
        Ok(Attributes {
            attr: self.attr(node.0)?,
            timeout: VALID,
        })
    }

    fn create(
        &self,
        _: &Context<'_>,
        _: NodeId,
        name: Name<'_>,
        _: &NewNode,
        _: &OpenArgs,
    ) -> Result<(Entry, Opened)> {
        let mut files = self.tree.files.lock().unwrap();
        files.entry(name.as_bytes().to_vec()).or_default();
        drop(files);
        let opened = Opened {
            handle: FileHandle(1),
            flags: OpenReplyFlags::empty(),
            backing: None,
        };
        Ok((self.entry(name.as_bytes())?, opened))
    }

    fn read(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &ReadArgs,
        reply: ReadReply<'_>,
    ) -> Result<ReadAnswer> {
        if args.handle == FileHandle(SLOW) && !self.tree.slow.is_open() {
            context.require_blocking()?;
            self.tree.slow.wait();
        }
        let file = self.of(node.0)?;
        let data = file.lock().unwrap();
        Ok(reply.bytes(&data[data.len().min(args.offset as usize)..]))
    }

    fn write(
        &self,
        _: &Context<'_>,
        node: NodeId,
        args: &WriteArgs,
        source: WriteSource<'_>,
    ) -> Result<usize> {
        let file = self.of(node.0)?;
        let mut data = file.lock().unwrap();
        let start = args.offset.min(1 << 20) as usize;
        let end = data.len().max(start + source.len());
        data.resize(end, 0);
        Ok(source.copy_to(&mut data[start..]))
    }

    fn setlk(&self, context: &Context<'_>, _: NodeId, _: &LockArgs, wait: bool) -> Result<()> {
        if !self.tree.lock.is_open() {
            if !wait {
                return Err(Errno::EAGAIN);
            }
            context.require_blocking()?;
            context.interruptible(|token| self.wait_for_lock(|| token.is_set()))?;
        }
        self.tree.granted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

impl SharedTreeFs {
    fn wait_for_lock(&self, is_interrupted: impl Fn() -> bool) -> Result<()> {
        let waiters = &self.tree.lock_waiters;
        waiters.fetch_add(1, Ordering::SeqCst);
        let end = Instant::now() + PATIENCE;
        let result = loop {
            if self.tree.lock.is_open() {
                break Ok(());
            }
            if is_interrupted() || Instant::now() > end {
                break Err(Errno::EINTR);
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        waiters.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

//! A file system in memory, for tests of what serves it: one directory of files, and a hook that sees each
//! request before it is carried out, and may count it, delay it, let it wait for a [`Gate`] or refuse it.
//!
//! [`Files`] outlive a session. The node ids are the session's own, so that one which is not saved shows.

#![allow(missing_docs, reason = "names say most")]

use crate::late::{LateCalls, When};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;
use thrufs::layout::Attr;
use thrufs::{
    Attributes, Context, DirectorySink, Entry, Errno, Features, FileHandle, FileSystem, Generation,
    InitFlags, LateAnswer, LockArgs, LockOwner, LowerFile, MapArgs, MappedFile, Name, Negotiation,
    NewNode, NodeId, Notifier, Opcode, OpenArgs, OpenReplyFlags, Opened, ReadAnswer, ReadArgs,
    ReadReply, Result, Services, SetAttr, Unique, WriteArgs, WriteSource,
};

/// Longer than any test waits; for the threads of one that has failed.
const HELD_MAX: Duration = Duration::from_secs(300);

/// How long a test waits for a thread.
const PATIENCE: Duration = Duration::from_secs(60);

/// Of a file, up to the last write.
const BYTES_MAX: u64 = 1 << 20;

const FIRST: u64 = 2;
const DIRECTORY: u32 = 0o040_000;

/// Holds threads until it is opened.
#[derive(Default)]
pub struct Gate {
    /// Threads that have come, and whether it is open.
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    pub fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        self.changed.notify_all();
        let held = |state: &mut (usize, bool)| !state.1;
        drop(self.changed.wait_timeout_while(state, HELD_MAX, held));
    }

    pub fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }

    pub fn came(&self) -> usize {
        self.state.lock().unwrap().0
    }

    #[track_caller]
    pub fn wait_for(&self, threads: usize) {
        let state = self.state.lock().unwrap();
        let misses = |state: &mut (usize, bool)| state.0 < threads;
        let (state, waited) = self
            .changed
            .wait_timeout_while(state, PATIENCE, misses)
            .unwrap();
        assert!(!waited.timed_out(), "only {} of {threads} came", state.0);
    }
}

/// A lock that others hold until it is released. Waits for it are system calls.
pub struct HeldLock {
    ends: Mutex<Option<OwnedFd>>,
    waits: OwnedFd,
    waiting: AtomicUsize,
    granted: AtomicUsize,
}

impl Default for HeldLock {
    fn default() -> HeldLock {
        let (waits, ends) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        HeldLock {
            ends: Mutex::new(Some(ends)),
            waits,
            waiting: AtomicUsize::new(0),
            granted: AtomicUsize::new(0),
        }
    }
}

impl HeldLock {
    /// Grants it to all who wait or come.
    pub fn release(&self) {
        *self.ends.lock().unwrap() = None;
    }

    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    pub fn granted(&self) -> usize {
        self.granted.load(Ordering::SeqCst)
    }

    fn take(&self, context: &Context<'_>, wait: bool) -> Result<()> {
        if self.ends.lock().unwrap().is_some() {
            if !wait {
                return Err(Errno::EAGAIN);
            }
            context.require_blocking()?;
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let waited = context.interruptible(|_| {
                rustix::io::read(&self.waits, &mut [0; 1])?;
                Ok(())
            });
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            waited?;
        }
        self.granted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

pub struct File {
    pub data: Vec<u8>,
    /// Has the data, instead.
    pub lower: Option<Arc<LowerFile>>,
    pub mode: u32,
    pub valid: Duration,
}

impl File {
    /// A file with this content, whose attributes are valid for a second.
    pub fn with(data: &[u8]) -> File {
        File {
            data: data.to_vec(),
            lower: None,
            mode: 0o100_644,
            valid: Duration::from_secs(1),
        }
    }

    /// An empty directory. What is looked up in it is looked up in the root.
    pub fn directory() -> File {
        File {
            mode: DIRECTORY | 0o755,
            ..File::with(b"")
        }
    }
}

/// A request that is about to be carried out.
pub struct Asked<'a> {
    pub opcode: Opcode,
    /// The node, or the directory of the name.
    pub node: NodeId,
    /// The handle of a READ.
    pub handle: FileHandle,
    pub files: &'a Files,
    context: &'a Context<'a>,
    fs: &'a MemoryFs,
    name: &'a [u8],
}

impl Asked<'_> {
    /// Whether it is about the file of this name.
    pub fn is_about(&self, name: &str) -> bool {
        self.has(|own| own == name.as_bytes())
    }

    /// Whether it is about a file whose name begins with this.
    pub fn is_one_of(&self, start: &str) -> bool {
        self.has(|own| own.starts_with(start.as_bytes()))
    }

    fn has(&self, is_it: impl Fn(&[u8]) -> bool) -> bool {
        let nodes = self.fs.nodes.lock().unwrap();
        is_it(self.name) || nodes.get(place(self.node)).is_some_and(|name| is_it(name))
    }

    /// Waits at the gate, on a thread that may.
    pub fn wait(&self) -> Result<()> {
        self.context.require_blocking()?;
        self.files.gate.pass();
        Ok(())
    }
}

type Hook = Box<dyn Fn(&Asked<'_>) -> Result<()> + Send + Sync>;
type WhenOf = Box<dyn Fn(&Asked<'_>) -> When + Send + Sync>;
type Map = Box<dyn Fn(NodeId) -> Result<MappedFile> + Send + Sync>;

/// How files are served.
#[derive(Default)]
pub struct Settings {
    pub wants: InitFlags,
    /// What OPEN answers.
    pub open_flags: OpenReplyFlags,
    pub refuses: bool,
    pub unlisted: bool,
    /// Called with each request but FORGET, on the thread that carries it out.
    pub hook: Option<Hook>,
    /// When LOOKUP, GETATTR, OPEN, READ, WRITE and READDIR are answered; at once by default.
    pub when: Option<WhenOf>,
    pub names_valid: Duration,
    /// Answers SETUPMAPPING.
    pub map: Option<Map>,
    /// How long the end of a session takes.
    pub end: Duration,
}

/// The files of any number of sessions, and what has become of these.
#[derive(Default)]
pub struct Files {
    all: Mutex<BTreeMap<Vec<u8>, File>>,
    calls: Mutex<HashMap<Opcode, usize>>,
    settings: Settings,
    /// For requests that a hook lets wait.
    pub gate: Gate,
    /// Requests that are answered later.
    pub late: LateCalls,
    /// What every lock waits for.
    pub lock: HeldLock,
    /// A session is neither saved nor restored.
    pub stays: AtomicBool,
    pub restored: AtomicUsize,
    /// Sessions that have begun.
    pub made: AtomicUsize,
    /// Sessions that have been told their end.
    pub destroyed: AtomicUsize,
    /// Sessions that are over.
    pub dropped: AtomicUsize,
    pub entries: AtomicUsize,
    /// Lookups that were forgotten, by node.
    pub forgotten: Mutex<HashMap<NodeId, u64>>,
    pub retrieved: Mutex<Vec<(Unique, u64, Vec<u8>)>>,
    pub offered: Mutex<InitFlags>,
    notifier: OnceLock<Notifier>,
}

impl Files {
    pub fn new(settings: Settings) -> Arc<Files> {
        Arc::new(Files {
            settings,
            ..Files::default()
        })
    }

    pub fn put(&self, name: &str, file: File) {
        self.all.lock().unwrap().insert(name.into(), file);
    }

    /// Of the first session that a kernel has.
    pub fn notifier(&self) -> &Notifier {
        self.notifier.get().expect("started")
    }

    /// Removes a file, of which the kernel is not told.
    pub fn remove(&self, name: &str) {
        self.all.lock().unwrap().remove(name.as_bytes());
    }

    /// Removes all files.
    pub fn clear(&self) {
        self.all.lock().unwrap().clear();
    }

    /// A session that knows these names as the nodes from 2 on.
    pub fn serve_known(self: &Arc<Files>, names: &[&str]) -> MemoryFs {
        self.made.fetch_add(1, Ordering::SeqCst);
        MemoryFs {
            files: Arc::clone(self),
            nodes: Mutex::new(names.iter().map(|&name| name.into()).collect()),
        }
    }

    fn list(&self, offset: u64, sink: &mut DirectorySink<'_>) -> Result<()> {
        let files = self.all.lock().unwrap();
        for (next, name) in (1..).zip(files.keys()).skip(offset as usize) {
            if !sink.entry(next + FIRST, next, 0, name) {
                break;
            }
        }
        Ok(())
    }

    pub fn serve(self: &Arc<Files>) -> MemoryFs {
        self.serve_known(&[])
    }

    pub fn count(&self, opcode: Opcode) -> usize {
        self.calls
            .lock()
            .unwrap()
            .get(&opcode)
            .copied()
            .unwrap_or(0)
    }
}

/// A session of [`Files`].
pub struct MemoryFs {
    files: Arc<Files>,
    /// Names by node.
    nodes: Mutex<Vec<Vec<u8>>>,
}

fn place(node: NodeId) -> usize {
    node.0.wrapping_sub(FIRST) as usize
}

impl MemoryFs {
    fn ask(&self, context: &Context<'_>, node: NodeId, name: &[u8]) -> Result<()> {
        self.ask_by(context, node, name, FileHandle(0))
    }

    /// Counts a request, and shows it to the hook.
    fn ask_by(
        &self,
        context: &Context<'_>,
        node: NodeId,
        name: &[u8],
        handle: FileHandle,
    ) -> Result<()> {
        self.ask_when(context, node, name, handle).map(drop)
    }

    /// The same, for a request that may be answered later.
    fn ask_when(
        &self,
        context: &Context<'_>,
        node: NodeId,
        name: &[u8],
        handle: FileHandle,
    ) -> Result<When> {
        let opcode = context.opcode();
        *self.files.calls.lock().unwrap().entry(opcode).or_default() += 1;
        let asked = Asked {
            opcode,
            node,
            handle,
            files: &self.files,
            context,
            fs: self,
            name,
        };
        let Settings { hook, when, .. } = &self.files.settings;
        hook.as_ref().map_or(Ok(()), |hook| hook(&asked))?;
        Ok(when.as_ref().map_or(When::Now, |when| when(&asked)))
    }

    /// Asks, and answers when the settings say so.
    fn answer<T: LateAnswer>(
        &self,
        context: &Context<'_>,
        node: NodeId,
        name: &[u8],
        result: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let when = self.ask_when(context, node, name, FileHandle(0))?;
        self.files.late.answer(context, when, result)
    }

    /// Calls `act` with the file of a node.
    fn with<T>(&self, node: NodeId, act: impl FnOnce(&mut File) -> T) -> Result<T> {
        if node == NodeId::ROOT {
            return Ok(act(&mut File::directory()));
        }
        let nodes = self.nodes.lock().unwrap();
        let name = nodes.get(place(node)).ok_or(Errno::ESTALE)?;
        let mut files = self.files.all.lock().unwrap();
        Ok(act(files.get_mut(name).ok_or(Errno::ESTALE)?))
    }

    fn attributes(&self, node: NodeId) -> Result<Attributes> {
        self.with(node, |file| Attributes {
            attr: Attr {
                ino: node.0,
                mode: file.mode,
                nlink: 1,
                size: file.data.len() as u64,
                blksize: 4096,
                ..Attr::default()
            },
            timeout: file.valid,
        })
    }

    /// Lists the names on another thread.
    fn list_later(&self, context: &Context<'_>, offset: u64) -> Result<()> {
        let late = context.answer_later()?;
        let files = Arc::clone(&self.files);
        std::thread::spawn(move || late.list(|sink| files.list(offset, sink)));
        Err(Errno::LATER)
    }

    fn entry(&self, name: &[u8]) -> Result<Entry> {
        if !self.files.all.lock().unwrap().contains_key(name) {
            return Err(Errno::ENOENT);
        }
        let node = {
            let mut nodes = self.nodes.lock().unwrap();
            let known = nodes.iter().position(|other| other == name);
            let place = known.unwrap_or_else(|| {
                nodes.push(name.to_vec());
                nodes.len() - 1
            });
            NodeId(place as u64 + FIRST)
        };
        self.files.entries.fetch_add(1, Ordering::SeqCst);
        let Attributes { attr, timeout } = self.attributes(node)?;
        Ok(Entry {
            node,
            generation: Generation(0),
            attr,
            entry_timeout: self.files.settings.names_valid,
            attr_timeout: timeout,
        })
    }
}

impl Drop for MemoryFs {
    fn drop(&mut self) {
        std::thread::sleep(self.files.settings.end);
        self.files.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl FileSystem for MemoryFs {
    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        let settings = &self.files.settings;
        negotiation.want(settings.wants);
        if settings.wants.contains(InitFlags::PASSTHROUGH) {
            negotiation.set_stack_depth_max(1);
        }
        let mut offered = self.files.offered.lock().unwrap();
        for flag in InitFlags::all().iter() {
            if negotiation.offers(flag) {
                *offered |= flag;
            }
        }
        if settings.refuses {
            Err(Errno::EACCES)
        } else {
            Ok(())
        }
    }

    fn started(&self, _: &Features, services: Services) {
        let _ = self.files.notifier.set(services.notifier);
    }

    fn destroy(&self) {
        self.files.destroyed.fetch_add(1, Ordering::SeqCst);
    }

    fn save(&self, sink: &mut dyn Write) -> io::Result<()> {
        if self.files.stays.load(Ordering::SeqCst) {
            return Err(io::Error::other("as the test wants it"));
        }
        for name in self.nodes.lock().unwrap().iter() {
            sink.write_all(&[name.len() as u8])?;
            sink.write_all(name)?;
        }
        sink.write_all(&[0])
    }

    fn restore(&self, source: &mut dyn Read) -> io::Result<()> {
        if self.files.stays.load(Ordering::SeqCst) {
            return Err(io::Error::other("as the test wants it"));
        }
        loop {
            let mut length = [0];
            source.read_exact(&mut length)?;
            if length == [0] {
                break;
            }
            let mut name = vec![0; length[0].into()];
            source.read_exact(&mut name)?;
            self.nodes.lock().unwrap().push(name);
        }
        self.files.restored.fetch_add(1, Ordering::SeqCst);
        match source.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn lookup(&self, context: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        self.answer(context, parent, name.as_bytes(), || {
            self.entry(name.as_bytes())
        })
    }

    fn forget(&self, node: NodeId, count: u64) {
        let mut forgotten = self.files.forgotten.lock().unwrap();
        let sum = forgotten.entry(node).or_default();
        *sum = sum.wrapping_add(count);
    }

    fn getattr(
        &self,
        context: &Context<'_>,
        node: NodeId,
        _: Option<FileHandle>,
    ) -> Result<Attributes> {
        self.answer(context, node, b"", || self.attributes(node))
    }

    fn setattr(&self, context: &Context<'_>, node: NodeId, set: &SetAttr) -> Result<Attributes> {
        self.ask(context, node, b"")?;
        if set.size.is_some_and(|size| size > BYTES_MAX) {
            return Err(Errno::EFBIG);
        }
        if let Some(size) = set.size {
            self.with(node, |file| file.data.resize(size as usize, 0))?;
        }
        self.attributes(node)
    }

    fn open(&self, context: &Context<'_>, node: NodeId, _: &OpenArgs) -> Result<Opened> {
        let flags = self.files.settings.open_flags;
        let opened = Opened {
            flags,
            ..Opened::default()
        };
        self.answer(context, node, b"", || Ok(opened))
    }

    fn create(
        &self,
        context: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        _: &NewNode,
        _: &OpenArgs,
    ) -> Result<(Entry, Opened)> {
        self.ask(context, parent, name.as_bytes())?;
        let mut files = self.files.all.lock().unwrap();
        files.insert(name.as_bytes().to_vec(), File::with(b""));
        drop(files);
        Ok((self.entry(name.as_bytes())?, Opened::default()))
    }

    fn read(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &ReadArgs,
        reply: ReadReply<'_>,
    ) -> Result<ReadAnswer> {
        let when = self.ask_when(context, node, b"", args.handle)?;
        let from = |file: &File| file.data[file.data.len().min(args.offset as usize)..].to_vec();
        if when != When::Now {
            let read = || self.with(node, |file| from(file));
            let later = self.files.late.answer(context, when, read);
            return later.map(|data| reply.bytes(&data));
        }
        self.with(node, |file| match &file.lower {
            Some(lower) => reply.file(Arc::clone(lower), args.offset),
            None => reply.bytes(&file.data[file.data.len().min(args.offset as usize)..]),
        })
    }

    fn write(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &WriteArgs,
        source: WriteSource<'_>,
    ) -> Result<usize> {
        let write = |file: &mut File| {
            if let Some(lower) = &file.lower {
                return source.write_to(lower, args.offset);
            }
            let start = args.offset.min(BYTES_MAX) as usize;
            let end = file.data.len().max(start + source.len());
            file.data.resize(end, 0);
            Ok(source.copy_to(&mut file.data[start..]))
        };
        self.answer(context, node, b"", || self.with(node, write)?)
    }

    fn flush(
        &self,
        context: &Context<'_>,
        node: NodeId,
        _: FileHandle,
        _: LockOwner,
    ) -> Result<()> {
        self.ask(context, node, b"")
    }

    fn fsync(&self, context: &Context<'_>, node: NodeId, _: FileHandle, _: bool) -> Result<()> {
        self.ask(context, node, b"")
    }

    fn readdir(
        &self,
        context: &Context<'_>,
        node: NodeId,
        _: FileHandle,
        offset: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        let when = self.ask_when(context, node, b"", FileHandle(0))?;
        if when != When::Now {
            return self.list_later(context, offset);
        }
        if self.files.settings.unlisted {
            return Ok(());
        }
        self.files.list(offset, sink)
    }

    fn setlk(
        &self,
        context: &Context<'_>,
        node: NodeId,
        lock: &LockArgs,
        wait: bool,
    ) -> Result<()> {
        self.ask(context, node, b"")?;
        if lock.kind == libc::F_UNLCK as u32 {
            return Ok(());
        }
        self.files.lock.take(context, wait)
    }

    fn map(&self, context: &Context<'_>, node: NodeId, _: &MapArgs) -> Result<MappedFile> {
        self.ask(context, node, b"")?;
        let map = self.files.settings.map.as_ref();
        map.map_or(Err(Errno::ENOSYS), |map| map(node))
    }

    fn retrieved(&self, _: NodeId, cookie: Unique, offset: u64, data: &[u8]) {
        let mut retrieved = self.files.retrieved.lock().unwrap();
        retrieved.push((cookie, offset, data.to_vec()));
    }
}

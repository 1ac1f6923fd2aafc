//! A file system in memory that counts calls, and blocks on request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thrufs::layout::Attr;
use thrufs::{
    Attributes, Context, Entry, Errno, FileHandle, FileSystem, Generation, InitFlags, LockArgs,
    LowerFile, Name, Negotiation, NewNode, NoWait, NodeId, OpenArgs, OpenReplyFlags, Opened,
    ReadAnswer, ReadArgs, ReadReply, Result, WriteArgs, WriteSource,
};

const VALID: Duration = Duration::from_secs(1);

/// Counters that the file systems of a test share.
#[derive(Default)]
pub struct Journal {
    pub made: AtomicUsize,
    pub destroyed: AtomicUsize,
    pub dropped: AtomicUsize,
    /// Some never see INIT, and need not be destroyed.
    pub some_never_begin: AtomicBool,
    pub forgotten: AtomicUsize,
    pub lookups: AtomicUsize,
    pub offered: Mutex<InitFlags>,
    /// Names of the threads that have read.
    pub readers: Mutex<BTreeSet<String>>,
    /// Blocks reads of `slow` until it is open.
    pub gate: Gate,
}

#[derive(Default)]
pub struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    pub fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.changed.notify_all();
    }

    /// Waits until it is open, or longer than any test, in case the test has failed.
    fn wait(&self) {
        let open = self.open.lock().unwrap();
        let limit = Duration::from_secs(40);
        let _open = self
            .changed
            .wait_timeout_while(open, limit, |open| !*open)
            .unwrap();
    }
}

impl Journal {
    pub fn count(counter: &AtomicUsize) -> usize {
        counter.load(Ordering::SeqCst)
    }
}

pub struct Memory {
    journal: Arc<Journal>,
    /// By number, from 2 on.
    files: Mutex<Vec<Vec<u8>>>,
    names: Mutex<BTreeMap<Vec<u8>, u64>>,
    lower: Option<Arc<LowerFile>>,
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Closing many files takes time.
        std::thread::sleep(Duration::from_millis(20));
        self.journal.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl Memory {
    pub fn make(journal: &Arc<Journal>) -> impl Fn() -> std::io::Result<Arc<Memory>> + use<> {
        let journal = Arc::clone(journal);
        move || Ok(Arc::new(Memory::new(&journal, None)))
    }

    pub fn with_lower(journal: &Arc<Journal>, file: std::fs::File, no_wait: NoWait) -> Memory {
        let lower = LowerFile::new(file.into(), no_wait);
        Memory::new(journal, Some(Arc::new(lower)))
    }

    fn new(journal: &Arc<Journal>, lower: Option<Arc<LowerFile>>) -> Memory {
        journal.made.fetch_add(1, Ordering::SeqCst);
        // The last session's file system is destroyed.
        if !journal.some_never_begin.load(Ordering::SeqCst) {
            assert_eq!(
                Journal::count(&journal.made),
                Journal::count(&journal.destroyed) + 1
            );
            assert_eq!(
                Journal::count(&journal.made),
                Journal::count(&journal.dropped) + 1,
                "what it had open is closed"
            );
        }
        Memory {
            journal: Arc::clone(journal),
            files: Mutex::default(),
            names: Mutex::default(),
            lower,
        }
    }

    fn files(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attr(&self, node: u64) -> Result<Attr> {
        if node == 1 {
            return Ok(Attr {
                ino: 1,
                mode: 0o040_755,
                nlink: 2,
                ..Attr::default()
            });
        }
        let files = self.files();
        let data = files.get(place(node)?).ok_or(Errno::ESTALE)?;
        Ok(Attr {
            ino: node,
            mode: 0o100_644,
            nlink: 1,
            size: data.len() as u64,
            ..Attr::default()
        })
    }

    fn entry(&self, node: u64) -> Result<Entry> {
        self.journal.lookups.fetch_add(1, Ordering::SeqCst);
        Ok(Entry {
            node: NodeId(node),
            generation: Generation(0),
            attr: self.attr(node)?,
            entry_timeout: VALID,
            attr_timeout: VALID,
        })
    }
}

/// Where the file of a node is among the files.
fn place(node: u64) -> Result<usize> {
    node.checked_sub(2)
        .map(|place| place as usize)
        .ok_or(Errno::EISDIR)
}

impl FileSystem for Memory {
    fn init(&self, negotiation: &mut Negotiation) -> Result<()> {
        negotiation
            .want(InitFlags::OVER_IO_URING | InitFlags::PASSTHROUGH | InitFlags::POSIX_LOCKS);
        negotiation.set_stack_depth_max(1);
        let mut offered = self.journal.offered.lock().unwrap();
        for flag in InitFlags::all()
            .iter()
            .filter(|flag| negotiation.offers(*flag))
        {
            *offered |= flag;
        }
        Ok(())
    }

    fn save(&self, sink: &mut dyn std::io::Write) -> std::io::Result<()> {
        sink.write_all(b"nothing")
    }

    fn restore(&self, source: &mut dyn std::io::Read) -> std::io::Result<()> {
        let mut state = Vec::new();
        source.read_to_end(&mut state)?;
        match state.as_slice() {
            b"nothing" => Ok(()),
            _ => Err(std::io::ErrorKind::InvalidData.into()),
        }
    }

    fn destroy(&self) {
        self.journal.destroyed.fetch_add(1, Ordering::SeqCst);
    }

    fn lookup(&self, _: &Context<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        let node = self.names.lock().unwrap().get(name.as_bytes()).copied();
        self.entry(node.ok_or(Errno::ENOENT)?)
    }

    fn forget(&self, _: NodeId, count: u64) {
        self.journal
            .forgotten
            .fetch_add(count as usize, Ordering::SeqCst);
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
        self.files().push(Vec::new());
        let node = self.files().len() as u64 + 1;
        self.names
            .lock()
            .unwrap()
            .insert(name.as_bytes().to_vec(), node);
        let opened = Opened {
            handle: FileHandle(node),
            flags: OpenReplyFlags::empty(),
            backing: None,
        };
        Ok((self.entry(node)?, opened))
    }

    fn read(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &ReadArgs,
        reply: ReadReply<'_>,
    ) -> Result<ReadAnswer> {
        // This handle was never given out: the read is to block.
        if args.handle == FileHandle(99) {
            context.require_blocking()?;
            self.journal.gate.wait();
        }
        let thread = std::thread::current();
        if let Some(name) = thread.name() {
            let mut readers = self.journal.readers.lock().unwrap();
            if !readers.contains(name) {
                readers.insert(name.to_owned());
            }
        }
        if let Some(lower) = &self.lower {
            return Ok(reply.file(Arc::clone(lower), args.offset));
        }
        let files = self.files();
        let data = files.get(place(node.0)?).ok_or(Errno::ESTALE)?;
        Ok(reply.bytes(&data[data.len().min(args.offset as usize)..]))
    }

    fn write(
        &self,
        _: &Context<'_>,
        node: NodeId,
        args: &WriteArgs,
        source: WriteSource<'_>,
    ) -> Result<usize> {
        if let Some(lower) = &self.lower {
            return source.write_to(lower, args.offset);
        }
        let mut files = self.files();
        let data = files.get_mut(place(node.0)?).ok_or(Errno::ESTALE)?;
        let start = args.offset.min(1 << 20) as usize;
        data.resize(data.len().max(start + source.len()), 0);
        Ok(source.copy_to(&mut data[start..]))
    }

    fn setlk(&self, context: &Context<'_>, _: NodeId, _: &LockArgs, wait: bool) -> Result<()> {
        if !wait {
            return Err(Errno::EAGAIN);
        }
        context.require_blocking()?;
        // The lock is never released.
        context.interruptible(|token| {
            while !token.is_set() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(Errno::EINTR)
        })
    }
}

//! Keeps files reachable that are removed between two requests of one system call.
//!
//! open(2) of a name is two requests, LOOKUP and OPEN. If the file is removed in between, nothing leads to
//! it: OPEN fails with ESTALE, and the kernel retries from LOOKUP on, but only once. So the second attempt
//! must not fail with ESTALE: its LOOKUPs keep a descriptor of what they find, and the OPEN succeeds even
//! if the file has lost its name, as it would have natively a moment earlier. The same holds for chmod(2),
//! link(2) and other calls with a path. CREATE, which never opens an existing file, also fails with ESTALE,
//! possibly twice: if the second LOOKUP finds nothing, and the file is created before the second CREATE.
//!
//! A second attempt is several LOOKUPs: each directory of the path is looked up again, and a name that
//! leads to another file than before is looked up twice.
//!
//! A thread that got ESTALE is recorded by its id until it has opened, changed or linked something; only a
//! few, and not for long. A wrong guess costs a cached descriptor; a thread that drops out may see ESTALE.
//! What a thread has found and never uses is kept until its next such use, until enough other threads got
//! ESTALE, or until its submount is released.

use super::inode::Inode;
use crate::ledger::{RETRYING_MAX, StateTables};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thrufs::{Context, Errno, Result};
use thrufs_abi::NodeId;

const THREADS_MAX: usize = RETRYING_MAX;

/// Most LOOKUPs of a thread's second attempt.
const LOOKUPS_MAX: u32 = 64;

/// How long a second attempt may take from its first OPEN to the next: a file is copied in between.
const COPY_MAX: Duration = Duration::from_secs(60);

/// How often a name is looked up if its file is removed each time. Each time, another process made progress.
pub(crate) const ATTEMPTS_MAX: usize = 64;

struct Found {
    node: NodeId,
    /// The index of its mount.
    mount: u32,
    fd: Arc<OwnedFd>,
}

#[derive(Default)]
pub(crate) struct Retries {
    has_threads: AtomicBool,
    threads: Mutex<VecDeque<Expected>>,
    /// The second attempt may come to another process.
    tables: Option<Arc<StateTables>>,
}

/// A thread, and how many LOOKUPs it may still make.
struct Expected {
    thread: u32,
    lookups_left: u32,
    /// What its latest LOOKUP has found. The inode gives up its own descriptor with its last name.
    found: Option<Found>,
    /// What it has opened since, and when.
    opened: Option<(NodeId, Instant)>,
}

impl Retries {
    pub(super) fn new(tables: Option<Arc<StateTables>>) -> Retries {
        Retries {
            tables,
            ..Retries::default()
        }
    }

    /// Expects the threads that a process which died has expected.
    pub(crate) fn go_on(&self) {
        let noted = self.tables.iter().flat_map(|tables| tables.retrying());
        noted
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|thread| self.expect(thread));
    }

    /// To be called after each change, under the lock.
    fn changed(&self, threads: &VecDeque<Expected>) {
        self.has_threads
            .store(!threads.is_empty(), Ordering::Release);
        if let Some(tables) = &self.tables {
            tables.note_retrying(threads.iter().map(|expected| expected.thread));
        }
    }

    /// Records how a request by path ended.
    #[inline]
    pub(crate) fn note<T>(&self, context: &Context<'_>, result: Result<T>) -> Result<T> {
        match &result {
            Err(error) => self.failed(context, *error),
            Ok(_) => self.end(context),
        }
        result
    }

    /// Records a thread that gets ESTALE.
    pub(crate) fn failed(&self, context: &Context<'_>, error: Errno) {
        if error == Errno::ESTALE {
            self.expect(context.pid());
        }
    }

    #[cold]
    fn expect(&self, thread: u32) {
        let mut threads = self.threads.lock();
        threads.retain(|expected| expected.thread != thread);
        if threads.len() >= THREADS_MAX {
            threads.pop_front();
        }
        threads.push_back(Expected {
            thread,
            lookups_left: LOOKUPS_MAX,
            found: None,
            opened: None,
        });
        self.changed(&threads);
    }

    /// Whether a request belongs to a second attempt.
    pub(crate) fn expects(&self, context: &Context<'_>) -> bool {
        let is_caller = |it: &Expected| it.thread == context.pid() && it.opened.is_none();
        self.has_threads.load(Ordering::Acquire) && self.threads.lock().iter().any(is_caller)
    }

    /// Whether this thread's second attempt has opened this node.
    pub(crate) fn has_opened(&self, context: &Context<'_>, node: NodeId) -> bool {
        let is_it = |it: &Expected| {
            let opened = it.opened.filter(|opened| opened.1.elapsed() < COPY_MAX);
            it.thread == context.pid() && opened.is_some_and(|opened| opened.0 == node)
        };
        self.has_threads.load(Ordering::Acquire) && self.threads.lock().iter().any(is_it)
    }

    /// Records what a thread's second attempt has opened.
    #[cold]
    pub(crate) fn opened(&self, context: &Context<'_>, node: NodeId) {
        let mut threads = self.threads.lock();
        let expected = threads.iter_mut().find(|it| it.thread == context.pid());
        let found = expected.and_then(|it| {
            it.opened = Some((node, Instant::now()));
            it.found.take()
        });
        // Closed outside the lock.
        drop(threads);
        drop(found);
    }

    /// Whether this LOOKUP belongs to a second attempt.
    #[inline]
    pub(crate) fn begins(&self, context: &Context<'_>) -> bool {
        self.has_threads.load(Ordering::Acquire) && self.count_lookup(context.pid())
    }

    #[cold]
    fn count_lookup(&self, thread: u32) -> bool {
        let mut threads = self.threads.lock();
        let Some(at) = threads.iter().position(|other| other.thread == thread) else {
            return false;
        };
        let expected = &mut threads[at];
        let is_over = expected.opened.is_some();
        expected.lookups_left -= 1;
        if is_over || expected.lookups_left == 0 {
            threads.remove(at);
            self.changed(&threads);
        }
        !is_over
    }

    pub(super) fn keep(&self, thread: u32, inode: &Inode, fd: Arc<OwnedFd>) {
        let mut threads = self.threads.lock();
        if let Some(expected) = threads.iter_mut().find(|other| other.thread == thread) {
            expected.found = Some(Found {
                node: inode.node(),
                mount: inode.mount().index,
                fd,
            });
        }
        drop(threads);
        inode.mount().idle_expiry.mark_used();
    }

    /// Closes the descriptors on a mount.
    pub(super) fn release_mount(&self, mount: u32) {
        if !self.has_threads.load(Ordering::Acquire) {
            return;
        }
        let mut threads = self.threads.lock();
        let on_mount = |found: &mut Found| found.mount == mount;
        let found = threads.iter_mut().map(|thread| &mut thread.found);
        let released: Vec<_> = found.filter_map(|found| found.take_if(on_mount)).collect();
        // Closed outside the lock: close(2) may take long.
        drop(threads);
        drop(released);
    }

    /// The descriptor of this node, if a thread has found it.
    pub(crate) fn kept(&self, node: NodeId) -> Option<Arc<OwnedFd>> {
        if !self.has_threads.load(Ordering::Acquire) {
            return None;
        }
        let threads = self.threads.lock();
        let mut found = threads.iter().filter_map(|thread| thread.found.as_ref());
        let found = found.find(|found| found.node == node)?;
        Some(Arc::clone(&found.fd))
    }

    /// The caller has used what it found: its attempt is over.
    #[inline]
    pub(crate) fn end(&self, context: &Context<'_>) {
        if self.has_threads.load(Ordering::Acquire) {
            self.forget(context.pid());
        }
    }

    #[cold]
    fn forget(&self, thread: u32) {
        let mut threads = self.threads.lock();
        threads.retain(|expected| expected.thread != thread);
        self.changed(&threads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_with_estale_is_recorded_until_it_opens() {
        let retries = Retries::default();
        let has_threads = || retries.has_threads.load(Ordering::Relaxed);
        assert!(!has_threads());
        retries.expect(7);
        assert!(has_threads());
        retries.expect(7);
        retries.expect(8);
        assert_eq!(retries.threads.lock().len(), 2);
        assert!(!retries.count_lookup(9));
        assert!(retries.count_lookup(7) && retries.count_lookup(7));
        retries.forget(7);
        assert!(!retries.count_lookup(7) && has_threads());
        retries.forget(8);
        assert!(!has_threads());
    }

    #[test]
    fn recorded_threads_and_lookups_are_bounded() {
        let retries = Retries::default();
        for thread in 0..THREADS_MAX as u32 + 5 {
            retries.expect(thread);
        }
        assert_eq!(retries.threads.lock().len(), THREADS_MAX);
        assert!(!retries.count_lookup(4));
        for _ in 0..LOOKUPS_MAX {
            assert!(retries.count_lookup(5));
        }
        assert!(!retries.count_lookup(5));
        assert_eq!(retries.threads.lock().len(), THREADS_MAX - 1);
    }
}

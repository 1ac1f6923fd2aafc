//! Frees small files that were removed, on a thread of its own.
//!
//! Whoever drops the last reference to a file without names frees its blocks, which takes as long as the removal
//! itself. So a removal keeps a reference, and that thread drops it: the answer does not wait.
//!
//! **What callers see.** Space is free again once the file is. Whatever needs space or reports it comes here first
//! ([`Freeing::settle`]); only a file that is open for writing under passthrough may find the file system full for a
//! millisecond, by the [`FILES_MAX`] files that are freed at that moment.
//!
//! **Access.** Requests add references under a lock that is held briefly, and the thread takes all of them at once. It
//! drops them under another, so that who settles waits for those that it has taken.

use super::Tree;
use super::inode::Inode;
use super::wakeup::Wakeup;
use crate::stat::stat_open;
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Most files that wait; a removal beyond them frees its file itself.
const FILES_MAX: usize = 64;

/// The largest file that is freed so.
const BYTES_MAX: u64 = 64 << 10;

/// The thread lets removals gather, so that not each of them has to wake it.
const PAUSE: Duration = Duration::from_millis(1);

/// How often it looks whether the tree still exists.
const RESTING_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct Freeing {
    /// There is a thread.
    runs: AtomicBool,
    waiting: Mutex<Vec<Arc<OwnedFd>>>,
    /// How many are not freed yet.
    pending: AtomicUsize,
    dropping: Mutex<()>,
    wakeup: Wakeup,
}

impl Freeing {
    /// Frees the file of `last`, the last reference perhaps, later or now.
    pub(crate) fn free(&self, last: Arc<OwnedFd>) {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= FILES_MAX {
            drop(waiting);
            return drop(last);
        }
        self.pending.fetch_add(1, Ordering::SeqCst);
        let is_first = waiting.is_empty();
        waiting.push(last);
        drop(waiting);
        if is_first {
            self.wakeup.notify();
        }
    }

    /// Returns once all files are free that were removed before.
    pub(crate) fn settle(&self) {
        if self.pending.load(Ordering::SeqCst) > 0 {
            self.drop_all();
        }
    }

    fn drop_all(&self) {
        let _dropping = self.dropping.lock();
        let files = std::mem::take(&mut *self.waiting.lock());
        let count = files.len();
        drop(files);
        self.pending.fetch_sub(count, Ordering::SeqCst);
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        self.wakeup.notify();
    }
}

/// Starts the thread, which ends once `tree` is gone.
pub(crate) fn start(tree: &Arc<Tree>) {
    if !std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) {
        return;
    }
    let freeing = Arc::clone(&tree.freeing);
    let tree = Arc::downgrade(tree);
    let started = std::thread::Builder::new()
        .name("free".into())
        .spawn(move || run(&tree, &freeing));
    if let Err(error) = started {
        tracing::debug!(%error, "removals free their files themselves");
    }
}

fn run(tree: &Weak<Tree>, freeing: &Freeing) {
    freeing.runs.store(true, Ordering::Relaxed);
    while tree.strong_count() > 0 {
        freeing.wakeup.wait(RESTING_INTERVAL);
        if freeing.pending.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(PAUSE);
            freeing.drop_all();
        }
    }
}

impl Tree {
    /// A reference to a file whose name is about to be removed, if it is one that [`Freeing`] takes.
    pub(crate) fn reference_to_free(
        &self,
        inode: &Inode,
        parent: BorrowedFd<'_>,
        name: &CStr,
    ) -> Option<Arc<OwnedFd>> {
        let mount = inode.mount();
        // NFS would give an open file another name. A submount would stay busy.
        let is_here = mount.is_source() && !mount.is_remote && !mount.is_layered;
        if !is_here || !inode.is_regular() || !self.freeing.runs.load(Ordering::Relaxed) {
            return None;
        }
        let open = || {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(parent, name, flags, Mode::empty());
            opened.ok().map(Arc::new)
        };
        let file = inode.cached_descriptor().or_else(open)?;
        let stat = stat_open(&*file).ok()?;
        (stat.stx_nlink == 1 && stat.stx_size <= BYTES_MAX).then_some(file)
    }
}

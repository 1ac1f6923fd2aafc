//! Frees small files that were removed, on a thread of its own.
//!
//! Whoever drops the last reference to a file without names frees its blocks, which takes as long as the removal
//! itself. So a removal keeps a reference, and that thread drops it: the answer does not wait.
//!
//! **What callers see.** Space is free again once the file is. Whatever needs space or reports it comes here first
//! ([`Freeing::settle`]); what does not ask this server (the host, a file that is open for writing under passthrough)
//! may find the file system full for a moment, by the [`FILES_MAX`] files that are freed then.
//!
//! **Access.** Requests add references under a lock that is held briefly, and the thread takes all of them at once. It
//! drops them under another, so that who settles waits for those that it has taken.

use super::wakeup::Wakeup;
use parking_lot::Mutex;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Most files that wait; a removal beyond them frees its file itself.
const FILES_MAX: usize = 64;

/// The thread lets removals gather, so that not each of them has to wake it.
const PAUSE: Duration = Duration::from_millis(1);

/// How long it rests at most.
const RESTING_INTERVAL: Duration = Duration::from_secs(3600);

#[derive(Debug, Default)]
pub(crate) struct Freeing {
    runs: AtomicBool,
    is_ended: AtomicBool,
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

    /// Whether there is a thread that frees files.
    pub(super) fn runs(&self) -> bool {
        self.runs.load(Ordering::Relaxed)
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        self.is_ended.store(true, Ordering::SeqCst);
        self.wakeup.notify();
    }
}

/// Starts the thread, unless this process has a single CPU.
pub(crate) fn start(freeing: &Arc<Freeing>) {
    if !std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1) {
        return;
    }
    let freeing = Arc::clone(freeing);
    let started = std::thread::Builder::new()
        .name("free".into())
        .spawn(move || run(&freeing));
    if let Err(error) = started {
        tracing::debug!(%error, "removals free their files themselves");
    }
}

fn run(freeing: &Freeing) {
    freeing.runs.store(true, Ordering::Relaxed);
    while !freeing.is_ended.load(Ordering::SeqCst) {
        freeing.wakeup.wait(RESTING_INTERVAL);
        if freeing.pending.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(PAUSE);
            freeing.drop_all();
        }
    }
}

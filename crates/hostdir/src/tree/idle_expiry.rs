//! When a submount's cached descriptors expire.
//!
//! **Access.** Requests count open files and set marks; only the housekeeping thread clears
//! them. It clears `keeps_something` *before* it closes the cached descriptors, and a request sets it
//! *after* it has cached one, under the lock that the thread takes to remove it. So whatever the thread did
//! not find is marked again.

use super::wakeup::Wakeup;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

pub(crate) struct IdleExpiry {
    /// `None` for the mount of the source, which is never released.
    wakeup: Option<Arc<Wakeup>>,
    open_files: AtomicUsize,
    /// Something is cached: the anchor, descriptors of inodes.
    keeps_something: AtomicBool,
    /// Since the last look of the housekeeping thread.
    used: AtomicBool,
    /// The last open file was released.
    left: AtomicBool,
    /// When the mount was last seen to be used.
    seen_used_ms: AtomicU64,
}

impl IdleExpiry {
    pub(crate) fn new(wakeup: Option<Arc<Wakeup>>) -> IdleExpiry {
        IdleExpiry {
            wakeup,
            open_files: AtomicUsize::new(0),
            keeps_something: AtomicBool::new(false),
            used: AtomicBool::new(false),
            left: AtomicBool::new(false),
            seen_used_ms: AtomicU64::new(0),
        }
    }

    pub(crate) fn file_opened(&self) {
        self.open_files.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn file_closed(&self) {
        let was_last = self.open_files.fetch_sub(1, Ordering::AcqRel) == 1;
        if let Some(wakeup) = self.wakeup.as_ref().filter(|_| was_last) {
            self.left.store(true, Ordering::Release);
            wakeup.notify();
        }
    }

    pub(crate) fn mark_used(&self) {
        let Some(wakeup) = &self.wakeup else { return };
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        if !self.keeps_something() && !self.keeps_something.swap(true, Ordering::AcqRel) {
            wakeup.notify();
        }
    }

    pub(crate) fn keeps_something(&self) -> bool {
        self.keeps_something.load(Ordering::Acquire)
    }

    /// Whether to close all cached descriptors now: nothing is open, and the last open file was released or
    /// nothing was used for `idle_ms`. The caller does so.
    pub(crate) fn expires(&self, now_ms: u64, idle_ms: u64) -> bool {
        if !self.keeps_something() {
            self.left.store(false, Ordering::Relaxed);
            return false;
        }
        if self.used.swap(false, Ordering::Relaxed) {
            self.seen_used_ms.store(now_ms, Ordering::Relaxed);
        }
        if self.open_files.load(Ordering::Acquire) > 0 {
            return false;
        }
        let unused_ms = now_ms.saturating_sub(self.seen_used_ms.load(Ordering::Relaxed));
        if !self.left.swap(false, Ordering::AcqRel) && unused_ms < idle_ms {
            return false;
        }
        self.keeps_something.store(false, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE_MS: u64 = 100;

    #[test]
    fn mount_expires_at_the_last_close() {
        let idle_expiry = IdleExpiry::new(Some(Arc::default()));
        idle_expiry.mark_used();
        idle_expiry.file_opened();
        idle_expiry.file_opened();
        idle_expiry.file_closed();
        assert!(!idle_expiry.expires(1000, IDLE_MS), "one is open");
        idle_expiry.file_closed();
        assert!(idle_expiry.expires(1000, IDLE_MS));
        assert!(
            !idle_expiry.expires(1000, IDLE_MS),
            "nothing is kept any more"
        );
    }

    #[test]
    fn mount_without_open_files_expires_when_idle() {
        let idle_expiry = IdleExpiry::new(Some(Arc::default()));
        idle_expiry.mark_used();
        assert!(!idle_expiry.expires(1000, IDLE_MS));
        assert!(!idle_expiry.expires(1099, IDLE_MS));
        idle_expiry.mark_used();
        assert!(!idle_expiry.expires(1150, IDLE_MS), "used in between");
        assert!(idle_expiry.expires(1250, IDLE_MS));
    }

    #[test]
    fn source_mount_never_expires() {
        let idle_expiry = IdleExpiry::new(None);
        idle_expiry.mark_used();
        idle_expiry.file_opened();
        idle_expiry.file_closed();
        assert!(!idle_expiry.expires(u64::MAX, 0));
    }
}

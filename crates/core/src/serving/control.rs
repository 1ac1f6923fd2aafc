//! Whether a session is to end, and how many of its threads are left.

use super::live_count::{LiveCount, LiveGuard};
use super::threads::OnPanic;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The file system was unmounted.
    Unmounted,
    /// The connection was aborted (`/sys/fs/fuse/connections/*/abort`); the mount is still there
    /// and answers `ENOTCONN`.
    Aborted,
    /// [`SessionHandle::shutdown`](crate::SessionHandle::shutdown) was called.
    ShutDown,
    /// Reading from the device failed for another reason: this error number.
    Failed(i32),
}

#[derive(Debug, Default)]
pub(crate) struct Control {
    /// Read before every read of a request.
    stopping: AtomicBool,
    end: Mutex<Option<End>>,
    ended: Condvar,
    threads: Arc<LiveCount>,
}

impl Control {
    /// Ends the session. The first reason stays.
    pub(crate) fn stop(&self, end: End) {
        self.end.lock().get_or_insert(end);
        self.stopping.store(true, Ordering::SeqCst);
        self.ended.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Whether [`SessionHandle::shutdown`](crate::SessionHandle::shutdown) was the first reason.
    pub(crate) fn was_shut_down(&self) -> bool {
        matches!(*self.end.lock(), Some(End::ShutDown))
    }

    pub(crate) fn thread(&self) -> LiveGuard {
        self.threads.one_more()
    }

    pub(crate) fn wait_for_end(&self) -> End {
        let mut end = self.end.lock();
        loop {
            if let Some(end) = *end {
                return end;
            }
            self.ended.wait(&mut end);
        }
    }

    /// Waits until no thread is left, calling `nudge` at intervals; returns how many are left at
    /// `deadline`.
    pub(crate) fn drain(&self, deadline: Instant, mut nudge: impl FnMut()) -> usize {
        const INTERVAL: Duration = Duration::from_millis(10);
        loop {
            nudge();
            let next = Instant::now() + INTERVAL;
            let left = self.threads.wait_for_none(next.min(deadline));
            if left == 0 || next >= deadline {
                return left;
            }
        }
    }
}

impl OnPanic for Control {
    fn panicked(&self) {
        self.stop(End::Failed(libc::EIO));
    }
}

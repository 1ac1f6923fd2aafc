//! Whether a session goes on, and how many of its threads still do.

use crate::serving::OnPanic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The file system was unmounted.
    Unmounted,
    /// The connection was aborted (`/sys/fs/fuse/connections/*/abort`); the mount is still there
    /// and answers `ENOTCONN`.
    Aborted,
    /// [`SessionHandle::shutdown`](super::SessionHandle::shutdown) was called.
    ShutDown,
    /// Reading from the device failed for another reason: this error number.
    Failed(i32),
}

/// Shared by everybody who serves, waits for or ends a session.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// Looked at before every read of a request.
    stopping: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    end: Option<End>,
    threads: usize,
}

impl Control {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the session. The first reason stands.
    pub(crate) fn stop(&self, end: End) {
        self.lock().end.get_or_insert(end);
        self.stopping.store(true, Ordering::SeqCst);
        self.changed.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Whether somebody asked for the end before anything else brought it.
    pub(crate) fn was_shut_down(&self) -> bool {
        matches!(self.lock().end, Some(End::ShutDown))
    }

    /// Counts a thread, for as long as the value lives.
    pub(crate) fn thread(self: &std::sync::Arc<Self>) -> ThreadCount {
        self.lock().threads += 1;
        ThreadCount(std::sync::Arc::clone(self))
    }

    /// Waits until the session is to end.
    pub(crate) fn wait_for_end(&self) -> End {
        let mut state = self.lock();
        loop {
            if let Some(end) = state.end {
                return end;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until no thread is left, calling `nudge` at intervals; returns how many are left at
    /// `deadline`.
    pub(crate) fn drain(&self, deadline: Instant, mut nudge: impl FnMut()) -> usize {
        const INTERVAL: Duration = Duration::from_millis(10);
        loop {
            if self.lock().threads == 0 {
                return 0;
            }
            nudge();
            let state = self.lock();
            if state.threads == 0 || Instant::now() >= deadline {
                return state.threads;
            }
            drop(self.changed.wait_timeout(state, INTERVAL));
        }
    }
}

impl OnPanic for Control {
    fn panicked(&self) {
        self.stop(End::Failed(libc::EIO));
    }
}

/// A thread of the session, which is over when this is dropped.
#[derive(Debug)]
pub(crate) struct ThreadCount(std::sync::Arc<Control>);

impl Drop for ThreadCount {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
        self.0.changed.notify_all();
    }
}

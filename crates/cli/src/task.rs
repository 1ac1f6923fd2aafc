//! Threads, and calls that may take long on threads of their own, with a descriptor that tells when one is
//! done.

use crate::waiting;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Starts a thread of this name.
///
/// # Errors
///
/// No threads.
pub(crate) fn start_thread<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(run)
}

/// A call that may take long.
#[derive(Debug)]
pub(crate) struct Task<T> {
    thread: JoinHandle<T>,
    /// At its end (hung up) when the thread is done.
    done: OwnedFd,
}

impl<T: Send + 'static> Task<T> {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// No descriptors or no threads.
    pub(crate) fn start(call: impl FnOnce() -> T + Send + 'static) -> io::Result<Task<T>> {
        let (done, ours) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let thread = start_thread("thrufs-task", move || {
            let result = call();
            drop(ours);
            result
        })?;
        Ok(Task { thread, done })
    }

    /// Waits for it to be done, but not longer than this.
    pub(crate) fn is_done_within(&self, time: Duration) -> bool {
        waiting::readable([Some(self.as_fd())], Some(Instant::now() + time))[0]
    }

    /// What it gave; waits if it is not done. `None` when it panicked.
    pub(crate) fn finish(self) -> Option<T> {
        self.thread.join().ok()
    }
}

impl<T> AsFd for Task<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }
}

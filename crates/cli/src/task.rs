//! Threads, and blocking calls on their own threads, with a descriptor that signals completion.

use crate::waiting;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) fn start_thread<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(run)
}

/// A thread that is waited for on drop.
#[derive(Debug)]
pub(crate) struct Joined(Option<JoinHandle<()>>);

impl From<JoinHandle<()>> for Joined {
    fn from(thread: JoinHandle<()>) -> Joined {
        Joined(Some(thread))
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let _ = self.0.take().map(JoinHandle::join);
    }
}

/// A blocking call.
#[derive(Debug)]
pub(crate) struct Task<T> {
    thread: JoinHandle<T>,
    /// A pipe that is hung up when the call is done.
    done: OwnedFd,
}

impl<T: Send + 'static> Task<T> {
    pub(crate) fn start(call: impl FnOnce() -> T + Send + 'static) -> io::Result<Task<T>> {
        let (done, ours) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let thread = start_thread("thrufs-task", move || {
            let result = call();
            drop(ours);
            result
        })?;
        Ok(Task { thread, done })
    }

    pub(crate) fn is_done_within(&self, time: Duration) -> bool {
        waiting::readable([Some(self.as_fd())], Some(Instant::now() + time))[0]
    }

    /// The result, if the call returns within this time.
    pub(crate) fn finish_within(self, time: Duration) -> Option<T> {
        self.is_done_within(time).then(|| self.finish())?
    }

    /// Joins the thread; `None` if it panicked.
    pub(crate) fn finish(self) -> Option<T> {
        self.thread.join().ok()
    }
}

impl<T> AsFd for Task<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }
}

//! What a request says of its caller, for as long as its future lives.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use thrufs::{Errno, Interrupted, Late, LateAnswer, PollHandle, Result};

/// The caller of a request, and whether it still waits. Owned, unlike [`thrufs::Context`], and cheap to clone.
#[derive(Clone, Debug)]
pub struct Context {
    uid: Option<u32>,
    gid: Option<u32>,
    pid: u32,
    poll_handle: Option<PollHandle>,
    interrupted: Interrupted,
}

impl Context {
    pub(crate) fn new<T: LateAnswer>(context: &thrufs::Context<'_>, late: &Late<T>) -> Context {
        Context {
            uid: context.uid(),
            gid: context.gid(),
            pid: context.pid(),
            poll_handle: context.poll_handle(),
            interrupted: late.interrupted(),
        }
    }

    /// See [`thrufs::Context::uid`].
    pub fn uid(&self) -> Option<u32> {
        self.uid
    }

    /// See [`thrufs::Context::gid`].
    pub fn gid(&self) -> Option<u32> {
        self.gid
    }

    /// See [`thrufs::Context::pid`].
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// See [`thrufs::Context::poll_handle`].
    pub fn poll_handle(&self) -> Option<PollHandle> {
        self.poll_handle
    }

    /// Whether the client was signalled, or the session ends: the answer is best `EINTR`, soon. A client that was
    /// killed waits until then.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.is_set()
    }

    /// Completes when that is so, or when the request has been answered.
    pub fn interrupted(&self) -> Interrupted {
        self.interrupted.clone()
    }

    /// Runs `work` until it has a result or the client is signalled, which drops it.
    ///
    /// # Errors
    /// `EINTR` when the client was signalled, or the session ends; else those of `work`.
    pub async fn interruptible<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let (mut work, mut interrupted) = (pin!(work), self.interrupted());
        poll_fn(|task| match work.as_mut().poll(task) {
            Poll::Pending => {
                let interrupted = Pin::new(&mut interrupted).poll(task);
                interrupted.map(|()| Err(Errno::EINTR))
            }
            ready => ready,
        })
        .await
    }
}

//! Replies that come later, without a thread that waits for them.
//!
//! A method of [`FileSystem`](crate::FileSystem) takes a [`Late`] from its context
//! ([`Context::answer_later`](crate::Context::answer_later)), passes it on, and returns [`Errno::LATER`]. The
//! transport then keeps the request and goes on with the next. Whoever has the [`Late`] gives the answer,
//! from any thread, which writes the reply to `/dev/fuse`, or passes it to the thread of the ring or queue.
//!
//! **Who has what.** The file system has the [`Late`]; the [`Pending`](pending) between them has the transport's part
//! ([`LateTarget`]) until the reply is sent or the session ends, so that a [`Late`] that outlives its session
//! holds no connection and no memory of a transport.
//!
//! **Bounds.** At most [`SessionConfig::late_max`](crate::SessionConfig::late_max) requests of a session are
//! out at a time. Beyond, `answer_later` defers the request to a thread that may sleep, where it waits for one
//! of them; when there is no such thread either, the request fails with EAGAIN, because the last reader must
//! remain free for INTERRUPT and for the end of the session.

mod answer;
mod pending;

pub use answer::Data;
pub use pending::{Interrupted, LateRequest, LateTarget};

use crate::directory::{DirectorySink, Listing};
use crate::errno::{Errno, Result};
use crate::interrupt::{InterruptToken, Interrupts, LateRefused};
use crate::metrics::Metrics;
use answer::{Encode, Shape};
use pending::{Asked, Pending};
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use thrufs_abi::{Opcode, Request};

/// What a method returns, where it may come later.
///
/// | answer | methods |
/// |---|---|
/// | [`Entry`](crate::Entry) | `lookup`, `symlink`, `mknod`, `mkdir`, `link` |
/// | [`Attributes`](crate::Attributes) | `getattr`, `setattr` |
/// | [`ExtendedAttributes`](crate::ExtendedAttributes) | `statx` |
/// | [`Opened`](crate::Opened) | `open`, `opendir` |
/// | `(Entry, Opened)` | `create`, `tmpfile` |
/// | `Vec<u8>`, [`Data`] | `read`, `readlink`, `getxattr`, `listxattr` |
/// | [`Listing`] | `readdir` |
/// | `usize` | `write` |
/// | `u64` | `lseek`, `copy_file_range`, `bmap` |
/// | `u32` | `poll` |
/// | `(i32, Vec<u8>)` | `ioctl` |
/// | [`FileSystemStatistics`](crate::FileSystemStatistics) | `statfs` |
/// | `Option<LockArgs>` | `getlk` |
/// | `()` | all others with a result, except `map` |
pub trait LateAnswer: Encode {}

impl<T: Encode> LateAnswer for T {}

/// A request that is to be answered, now or later, from any thread.
///
/// Dropping it answers with `EIO`, and logs that.
pub struct Late<T: LateAnswer> {
    /// Nothing once it was answered.
    pending: Option<Arc<Pending>>,
    answer: PhantomData<fn(T)>,
}

impl<T: LateAnswer> Late<T> {
    /// Answers. Has no effect after the end of the session.
    ///
    /// When the kernel does not take the reply (the request was aborted), a lookup that it counts or a file
    /// that it opens is taken back at once, by [`forget`](crate::FileSystem::forget) or
    /// [`release`](crate::FileSystem::release) on this thread: the caller holds no lock that they take.
    pub fn give(mut self, answer: Result<T>) {
        if let Some(pending) = self.pending.take() {
            pending.complete(answer.as_ref().map_err(|errno| *errno));
        }
    }

    /// Whether the client was signalled, or the session ends: the answer is best `EINTR`, soon. A client that was
    /// killed waits until then.
    pub fn is_interrupted(&self) -> bool {
        let pending = self.pending.as_ref();
        pending.is_some_and(|pending| pending.token().is_set())
    }

    /// The same question, for code that does not have this value.
    pub fn interrupt_token(&self) -> InterruptToken {
        let pending = self.pending.as_ref();
        pending.map_or_else(InterruptToken::default, |pending| pending.token().clone())
    }

    /// The same as a future, for a task.
    pub fn interrupted(&self) -> Interrupted {
        Interrupted(self.pending.clone())
    }

    /// Calls `callback` once when [`is_interrupted`](Self::is_interrupted) becomes true, or now if it is. It
    /// replaces an earlier one, and is dropped with the answer. It is called on a thread that reads requests,
    /// and must not sleep.
    pub fn on_interrupt(&self, callback: impl FnOnce() + Send + 'static) {
        if let Some(pending) = &self.pending {
            pending.on_interrupt(Box::new(callback));
        }
    }
}

impl Late<Listing> {
    /// Answers with the entries that `fill` writes, by the rules of [`readdir`](crate::FileSystem::readdir).
    /// `fill` runs at once, on this thread.
    pub fn list(self, fill: impl FnOnce(&mut DirectorySink<'_>) -> Result<()>) {
        let mut sink = self.sink();
        let result = fill(&mut sink);
        self.give_sink(sink, result);
    }

    /// Answers with what is in a [`sink`](Self::sink), filling which has ended with `result`.
    pub fn give_sink(self, sink: DirectorySink<'static>, result: Result<()>) {
        // As in a reply at once: the lookups of entries that were written are counted.
        self.give(match result {
            Err(errno) if sink.is_empty() => Err(errno),
            _ => Ok(sink.into_listing()),
        });
    }

    /// Room for the entries of this request, to be filled over time.
    pub fn sink(&self) -> DirectorySink<'static> {
        let shape = self.pending.as_ref().map(|pending| pending.shape());
        let bytes = shape.map_or(0, |shape| shape.limit(usize::MAX));
        let is_plus = shape.is_some_and(|shape| shape.opcode == Opcode::Readdirplus);
        DirectorySink::owned(bytes, is_plus)
    }
}

impl<T: LateAnswer> Drop for Late<T> {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take() {
            pending.abandon();
        }
    }
}

impl<T: LateAnswer> fmt::Debug for Late<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Late({:?})", self.pending)
    }
}

/// A request during the call of its method, which may take a [`Late`] for it. Costs one that does not nothing.
#[derive(Debug)]
pub(crate) struct LateOffer<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) started: Instant,
    pub(crate) metrics: &'a Arc<Metrics>,
    pub(crate) data_bytes_max: u32,
    taken: OnceLock<Arc<Pending>>,
    is_full: AtomicBool,
}

impl<'a> LateOffer<'a> {
    pub(crate) fn new(
        request: &'a Request<'a>,
        started: Instant,
        metrics: &'a Arc<Metrics>,
        data_bytes_max: u32,
    ) -> LateOffer<'a> {
        LateOffer {
            request,
            started,
            metrics,
            data_bytes_max,
            taken: OnceLock::new(),
            is_full: AtomicBool::new(false),
        }
    }

    /// See [`Context::answer_later`](crate::Context::answer_later).
    pub(crate) fn take<T: LateAnswer>(
        &self,
        interrupts: &Interrupts,
        may_block: bool,
    ) -> Result<Late<T>> {
        let header = self.request.header;
        let is_possible = T::answers(header.opcode) && self.taken.get().is_none();
        if !is_possible {
            tracing::error!(
                opcode = header.opcode.name(),
                "the file system wants to answer later what it has to answer now, has taken already, or with \
                 another type"
            );
            return Err(Errno::EIO);
        }
        let make = |serial| {
            let asked = Asked {
                header,
                shape: Shape::of(header.opcode, &self.request.operation, self.data_bytes_max),
                started: self.started,
                metrics: Arc::clone(self.metrics),
                interrupts: interrupts.clone(),
            };
            Arc::new(Pending::new(asked, serial))
        };
        let pending = loop {
            match interrupts.enter_late(header.unique, make) {
                Ok(pending) => break pending,
                Err(LateRefused::Ended) => return Err(Errno::ENOTCONN),
                Err(LateRefused::Full) if may_block => interrupts.await_late(header.unique)?,
                Err(LateRefused::Full) => {
                    self.is_full.store(true, Ordering::Relaxed);
                    return Err(Errno::DEFER);
                }
            }
        };
        let late = Late {
            pending: Some(Arc::clone(&pending)),
            answer: PhantomData,
        };
        // Two threads of one method: the second gets nothing, and its request is answered by the first.
        if let Err(second) = self.taken.set(pending) {
            second.cancel();
            return Err(Errno::EIO);
        }
        Ok(late)
    }

    /// Whether the request is to wait until fewer are out.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// The method has returned. `is_later` says whether it is to be answered later; otherwise a [`Late`] that was
    /// taken has no effect.
    pub(crate) fn settle(self, is_later: bool) -> Option<LateRequest> {
        let pending = self.taken.into_inner()?;
        if !is_later {
            pending.cancel();
            return None;
        }
        Some(pending.request())
    }
}

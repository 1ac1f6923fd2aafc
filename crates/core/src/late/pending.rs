//! A request whose reply comes later: where it is, and who completes it.
//!
//! Three parties meet at its state, in any order: the transport brings the request once the method has
//! returned (`keep`), the file system brings the answer (`complete`), and the end of the session takes the
//! request away (`end`). Whoever comes second sends the reply, after it has let go of the lock. What comes
//! afterwards finds `Done`, and has no effect.

use super::answer::{Encode, Shape};
use crate::errno::{Errno, Result};
use crate::interrupt::{InterruptToken, Interrupts, Outstanding};
use crate::metrics::{Metrics, bump};
use crate::reply::{HEADER_BYTES, put_header};
use parking_lot::Mutex;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use thrufs_abi::Header;

/// The header of a reply, and the largest fixed body.
const HEAD_BYTES_MAX: usize = HEADER_BYTES + 512;

/// A request that its transport keeps for a late reply, with all that is needed to send one.
pub trait LateTarget: Send {
    /// Sends the reply `head`, which begins with its header, followed by `data`. Called once, on any thread.
    fn send(self: Box<Self>, head: &[u8], data: &[u8]);
}

/// A request that will be answered later: see [`Outcome::Later`](crate::Outcome::Later).
#[derive(Debug)]
pub struct LateRequest(Arc<Pending>);

impl LateRequest {
    /// The header of the request.
    pub fn header(&self) -> &Header {
        &self.0.header
    }

    /// Has `target` send the reply: at once if it was given already.
    pub fn keep(self, target: Box<dyn LateTarget>) {
        self.0.keep(target);
    }
}

/// What has to be known of a request to complete it.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) header: Header,
    pub(super) shape: Shape,
    pub(super) started: Instant,
    pub(super) metrics: Arc<Metrics>,
    pub(super) interrupts: Interrupts,
}

pub(crate) struct Pending {
    header: Header,
    shape: Shape,
    started: Instant,
    metrics: Arc<Metrics>,
    interrupts: Interrupts,
    /// With the request's number, its key among those that are out.
    serial: u64,
    token: InterruptToken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    stage: Stage,
    on_interrupt: Option<Box<dyn FnOnce() + Send>>,
    /// Of the tasks that wait for an interrupt, each once.
    wakers: Vec<Waker>,
}

#[derive(Default)]
enum Stage {
    /// The method has not returned, or its transport has not brought the request yet.
    #[default]
    Called,
    /// The same, and it was answered.
    Given(Reply),
    Kept(Box<dyn LateTarget>),
    Done,
}

/// A reply without the request.
struct Reply {
    bytes: Vec<u8>,
    error: Option<Errno>,
    moved: u64,
}

impl fmt::Debug for Pending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Pending({:?})", self.header)
    }
}

impl Pending {
    pub(super) fn new(asked: Asked, serial: u64) -> Pending {
        let Asked {
            header,
            shape,
            started,
            metrics,
            interrupts,
        } = asked;
        metrics.figures.late.fetch_add(1, Ordering::Relaxed);
        Pending {
            header,
            shape,
            started,
            metrics,
            interrupts,
            serial,
            token: InterruptToken::default(),
            state: Mutex::default(),
        }
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    pub(super) fn token(&self) -> &InterruptToken {
        &self.token
    }

    pub(super) fn request(self: Arc<Self>) -> LateRequest {
        LateRequest(self)
    }

    fn keep(&self, target: Box<dyn LateTarget>) {
        let mut state = self.state.lock();
        match std::mem::replace(&mut state.stage, Stage::Done) {
            Stage::Called => state.stage = Stage::Kept(target),
            Stage::Given(reply) => {
                drop(state);
                self.record(reply.error, reply.moved);
                target.send(&reply.bytes, &[]);
                self.leave();
            }
            Stage::Kept(_) | Stage::Done => {}
        }
    }

    /// Answers the request. False when it was answered, or ended, before.
    pub(super) fn complete<T: Encode>(&self, answer: Result<&T>) -> bool {
        let mut head = [0; HEAD_BYTES_MAX];
        let body = answer.and_then(|answer| {
            let length = answer.put(self.shape, &mut head[HEADER_BYTES..])?;
            Ok((length, answer.data(self.shape), answer.moved(self.shape)))
        });
        let (data, moved) = body.map_or((&[][..], 0), |(_, data, moved)| (data, moved));
        let length = body.map(|(length, data, _)| length + data.len());
        let total = put_header(&mut head, self.header.unique, length);
        let head = &head[..total - data.len()];
        let error = length.err();
        let mut state = self.state.lock();
        let target = match std::mem::replace(&mut state.stage, Stage::Done) {
            Stage::Called => {
                let bytes = [head, data].concat();
                state.stage = Stage::Given(Reply {
                    bytes,
                    error,
                    moved,
                });
                None
            }
            Stage::Kept(target) => Some(target),
            given @ Stage::Given(_) => {
                state.stage = given;
                return false;
            }
            Stage::Done => return false,
        };
        let (callback, wakers) = (state.on_interrupt.take(), std::mem::take(&mut state.wakers));
        drop(state);
        drop(callback);
        wakers.into_iter().for_each(Waker::wake);
        if let Some(target) = target {
            self.record(error, moved);
            target.send(head, data);
            self.leave();
        }
        true
    }

    /// The method has answered by itself after all.
    pub(crate) fn cancel(&self) {
        let mut state = self.state.lock();
        let was = std::mem::take(&mut *state);
        state.stage = Stage::Done;
        drop(state);
        was.wakers.into_iter().for_each(Waker::wake);
        self.leave();
    }

    fn record(&self, error: Option<Errno>, moved: u64) {
        let (opcode, elapsed) = (self.header.opcode, self.started.elapsed());
        self.metrics.record(opcode, elapsed, error, moved);
    }

    /// Makes room for another one. After the reply was sent, so that nothing is left to be done for requests
    /// that are not counted.
    fn leave(&self) {
        if self.interrupts.leave_late(self.header.unique, self.serial) {
            self.metrics.figures.late.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The file system has dropped the request without an answer.
    pub(super) fn abandon(&self) {
        if self.complete::<()>(Err(Errno::EIO)) {
            bump(&self.metrics.figures.late_dropped);
            tracing::warn!(
                opcode = self.header.opcode.name(),
                "the file system dropped a request that it was to answer later: it fails with EIO"
            );
        }
    }

    /// Calls `callback` at an INTERRUPT, or now if there was one.
    pub(super) fn on_interrupt(&self, callback: Box<dyn FnOnce() + Send>) {
        let mut state = self.state.lock();
        if self.token.is_set() {
            drop(state);
            return callback();
        }
        let is_out = !matches!(state.stage, Stage::Done);
        let unused = if is_out {
            state.on_interrupt.replace(callback)
        } else {
            Some(callback)
        };
        drop(state);
        drop(unused);
    }
}

/// Completes once the client of a request that is answered later was signalled, or the session ends; also when the
/// request has been answered, so that no task waits for nothing. [`Late::interrupted`](super::Late::interrupted)
/// makes it. Keeps neither the request nor the connection, and any number of tasks may await clones of it.
#[derive(Clone, Debug)]
pub struct Interrupted(pub(super) Option<Arc<Pending>>);

impl Interrupted {
    /// Whether the client was signalled, or the session ends.
    pub fn is_set(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|pending| pending.token.is_set())
    }
}

impl Future for Interrupted {
    type Output = ();

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        let Some(pending) = &self.0 else {
            return Poll::Ready(());
        };
        let mut state = pending.state.lock();
        let is_answered = matches!(state.stage, Stage::Given(_) | Stage::Done);
        if is_answered || pending.token.is_set() {
            return Poll::Ready(());
        }
        if !state
            .wakers
            .iter()
            .any(|waker| waker.will_wake(task.waker()))
        {
            state.wakers.push(task.waker().clone());
        }
        Poll::Pending
    }
}

impl Outstanding for Pending {
    fn interrupt(&self) {
        let mut state = self.state.lock();
        self.token.interrupt();
        let (callback, wakers) = (state.on_interrupt.take(), std::mem::take(&mut state.wakers));
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        if let Some(callback) = callback
            && catch_unwind(AssertUnwindSafe(callback)).is_err()
        {
            bump(&self.metrics.figures.panics);
            tracing::error!("the file system panicked at an interrupt");
        }
    }

    fn end(&self) {
        self.complete::<()>(Err(Errno::ENOTCONN));
    }
}

//! A queue that many threads share, each waiting for its own reply.
//!
//! The lock is held to poll and to submit, never to sleep. One waiting thread sleeps until the device signals,
//! the others until that thread has polled. A thread that has its reply wakes the others, of which one takes
//! over.

use super::error::{ExchangeError, QueueError, SubmitError};
use super::queue::{Parts, Queue, Token};
use super::waker::{Waker, Woken};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use thrufs_testing::ReplyLayout;

struct State {
    queue: Queue,
    /// A thread sleeps until the device signals.
    watched: bool,
}

/// Exclusive use of a [`Queue`], from [`FrontEnd::queue`](crate::FrontEnd::queue). Other threads' requests on
/// this queue wait meanwhile.
pub struct QueueGuard<'a>(MutexGuard<'a, State>);

impl std::ops::Deref for QueueGuard<'_> {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        &self.0.queue
    }
}

impl std::ops::DerefMut for QueueGuard<'_> {
    fn deref_mut(&mut self) -> &mut Queue {
        &mut self.0.queue
    }
}

pub(crate) struct SharedQueue {
    state: Mutex<State>,
    progress: Condvar,
    waker: Arc<Waker>,
}

impl SharedQueue {
    pub(crate) fn new(queue: Queue) -> SharedQueue {
        SharedQueue {
            waker: Arc::clone(queue.waker()),
            state: Mutex::new(State {
                queue,
                watched: false,
            }),
            progress: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lock(&self) -> QueueGuard<'_> {
        QueueGuard(self.state())
    }

    /// Sends a request and waits until the device has returned it. Writes the reply to `reply`.
    pub(crate) fn exchange(
        &self,
        parts: &Parts<'_>,
        layout: Option<ReplyLayout>,
        deadline: Option<Instant>,
        reply: &mut Vec<u8>,
    ) -> Result<(), ExchangeError> {
        let mut state = self.state();
        let token = loop {
            match state.queue.submit_claimed(parts, layout) {
                Ok(token) => break token,
                Err(SubmitError::Full) => {
                    let before = state.queue.in_flight();
                    state.queue.harvest()?;
                    if state.queue.in_flight() == before {
                        state = self.progress(state, deadline)?;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        };
        state.queue.notify()?;
        self.collect(state, token, deadline, reply)
    }

    fn collect<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        token: Token,
        deadline: Option<Instant>,
        reply: &mut Vec<u8>,
    ) -> Result<(), ExchangeError> {
        loop {
            state.queue.harvest()?;
            if let Some(completion) = state.queue.take(token) {
                state.queue.copy_reply(&completion, reply);
                state.queue.free(completion);
                drop(state);
                // Threads that wait for a free buffer or for their reply.
                self.progress.notify_all();
                return Ok(());
            }
            state = match self.progress(state, deadline) {
                Ok(state) => state,
                Err(error) => {
                    self.state().queue.abandon(token);
                    return Err(error);
                }
            };
        }
    }

    /// Waits until a chain may have come back.
    fn progress<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        deadline: Option<Instant>,
    ) -> Result<MutexGuard<'a, State>, ExchangeError> {
        // With nothing in flight, only threads that take their replies free buffers.
        if state.watched || state.queue.in_flight() == 0 {
            return self.until_looked(state, deadline);
        }
        if state.queue.is_armed_and_empty() {
            state.watched = true;
            drop(state);
            let woken = self.waker.sleep(deadline);
            state = self.state();
            state.watched = false;
            self.progress.notify_all();
            match woken.map_err(QueueError::Waiting)? {
                Woken::Signal => {}
                Woken::Late if state.queue.is_armed_and_empty() => return Err(ExchangeError::Late),
                Woken::Gone if state.queue.is_armed_and_empty() => {
                    return Err(QueueError::Gone.into());
                }
                Woken::Late | Woken::Gone => {}
            }
        }
        Ok(state)
    }

    fn until_looked<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        deadline: Option<Instant>,
    ) -> Result<MutexGuard<'a, State>, ExchangeError> {
        let Some(deadline) = deadline else {
            let woken = self.progress.wait(state);
            return Ok(woken.unwrap_or_else(PoisonError::into_inner));
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ExchangeError::Late);
        }
        let woken = self.progress.wait_timeout(state, left);
        Ok(woken.unwrap_or_else(PoisonError::into_inner).0)
    }
}

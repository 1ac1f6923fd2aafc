//! What is between a method of fuser, which answers by a value of its own from any thread, and one of the library,
//! which returns the answer or takes the request to answer it later.
//!
//! An [`Answer`] is the program's; the [`Slot`] behind it has two ends. What is given before the method has
//! returned is what the library's method returns, without a further system call. Otherwise the request is taken
//! when the method has returned ([`Context::answer_later`]), and given then.
//!
//! While a thread gives an answer or runs a method, locks may be held that the file system's `forget` and `release`
//! take, fuser's callers being used to a reply that calls nothing back. [`is_busy`] says so.

use crate::Errno;
use parking_lot::{Condvar, Mutex};
use std::cell::Cell;
use std::fmt;
use std::mem::replace;
use std::sync::Arc;
use thrufs::{Context, Late, LateAnswer, Result};

thread_local! {
    static BUSY: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread runs a method of the file system, or gives an answer.
pub(crate) fn is_busy() -> bool {
    BUSY.get() > 0
}

pub(crate) struct Busy;

impl Busy {
    pub(crate) fn begin() -> Busy {
        BUSY.set(BUSY.get() + 1);
        Busy
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.set(BUSY.get() - 1);
    }
}

pub(crate) struct Slot<T: LateAnswer> {
    state: Mutex<State<T>>,
    given: Condvar,
}

enum State<T: LateAnswer> {
    /// The method runs, or its thread waits.
    Called,
    Given(Result<T>),
    Late(Late<T>),
    Done,
}

impl<T: LateAnswer> Slot<T> {
    fn give(&self, answer: Result<T>) {
        let mut state = self.state.lock();
        match replace(&mut *state, State::Done) {
            State::Called => {
                *state = State::Given(answer);
                drop(state);
                self.given.notify_all();
            }
            State::Late(late) => {
                drop(state);
                let _busy = Busy::begin();
                late.give(answer);
            }
            State::Given(_) | State::Done => {}
        }
    }

    /// The method has returned.
    fn settle(&self, context: &Context<'_>) -> Result<T> {
        if let State::Given(answer) = replace(&mut *self.state.lock(), State::Called) {
            return answer;
        }
        // Without the lock: it may wait for other answers.
        let late = match context.answer_later::<T>() {
            Ok(late) => late,
            Err(thrufs::Errno::ENOTCONN) => return Err(thrufs::Errno::ENOTCONN),
            // As many requests are out as may be. The method cannot be called again.
            Err(_) => return self.wait(),
        };
        let mut state = self.state.lock();
        if let State::Given(answer) = replace(&mut *state, State::Done) {
            drop(state);
            late.give(answer);
        } else {
            *state = State::Late(late);
        }
        Err(thrufs::Errno::LATER)
    }

    fn wait(&self) -> Result<T> {
        let mut state = self.state.lock();
        loop {
            if let State::Given(answer) = replace(&mut *state, State::Called) {
                return answer;
            }
            self.given.wait(&mut state);
        }
    }
}

/// The right to answer a request once.
pub(crate) struct Answer<T: LateAnswer>(Option<Arc<Slot<T>>>);

impl<T: LateAnswer> Answer<T> {
    /// Calls a method with an answer to give; returns what it gave, or takes the request.
    pub(crate) fn of(context: &Context<'_>, method: impl FnOnce(Answer<T>)) -> Result<T> {
        let slot = Arc::new(Slot {
            state: Mutex::new(State::Called),
            given: Condvar::new(),
        });
        method(Answer(Some(Arc::clone(&slot))));
        slot.settle(context)
    }

    pub(crate) fn give(mut self, answer: std::result::Result<T, Errno>) {
        if let Some(slot) = self.0.take() {
            slot.give(answer.map_err(thrufs::Errno::from));
        }
    }
}

impl<T: LateAnswer> Drop for Answer<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            tracing::warn!(
                "the file system dropped a request without an answer: it fails with EIO"
            );
            slot.give(Err(thrufs::Errno::EIO));
        }
    }
}

impl<T: LateAnswer> fmt::Debug for Answer<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Answer")
    }
}

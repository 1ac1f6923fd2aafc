//! Answers of [`MemoryFs`](crate::memory::MemoryFs) that come later, when a test gives them.

use std::sync::mpsc::channel;
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use thrufs::{Context, Errno, InterruptToken, Late, LateAnswer, Result, Unique};

/// How long a test waits for a request.
const PATIENCE: Duration = Duration::from_secs(120);

/// When a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// By the method.
    Now,
    /// When the test gives it.
    Later,
    /// By another thread, before the method returns.
    Before,
    /// Never: the file system drops it.
    Dropped,
    /// When it is interrupted, with EINTR.
    Interrupted,
}

/// A request that the test has.
pub struct LateCall {
    /// Its number.
    pub unique: Unique,
    token: InterruptToken,
    give: Box<dyn FnOnce(Result<()>) + Send>,
}

impl LateCall {
    /// Answers as the method would have, or with an error.
    pub fn give(self, allowed: Result<()>) {
        (self.give)(allowed);
    }

    /// Whether its client was interrupted.
    pub fn is_interrupted(&self) -> bool {
        self.token.is_set()
    }
}

/// The requests that wait for a test.
#[derive(Default)]
pub struct LateCalls {
    calls: Mutex<Vec<LateCall>>,
    changed: Condvar,
}

impl LateCalls {
    /// Answers `result` at the right time.
    pub(crate) fn answer<T: LateAnswer>(
        &self,
        context: &Context<'_>,
        when: When,
        result: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if when == When::Now {
            return result();
        }
        let late: Late<T> = context.answer_later()?;
        let result = result();
        match when {
            When::Now | When::Dropped => drop(late),
            When::Before => {
                let given = std::thread::spawn(|| late.give(result));
                given.join().unwrap();
            }
            When::Interrupted => {
                let (tell, told) = channel();
                late.on_interrupt(move || tell.send(()).unwrap_or_default());
                std::thread::spawn(move || {
                    // Fails when the session has ended, which has answered it.
                    let _ = told.recv();
                    late.give(Err(Errno::EINTR));
                });
                self.push(context.unique(), InterruptToken::default(), Box::new(drop));
            }
            When::Later => {
                let token = late.interrupt_token();
                let give = move |allowed: Result<()>| late.give(allowed.and(result));
                self.push(context.unique(), token, Box::new(give));
            }
        }
        Err(Errno::LATER)
    }

    fn push(
        &self,
        unique: Unique,
        token: InterruptToken,
        give: Box<dyn FnOnce(Result<()>) + Send>,
    ) {
        let call = LateCall {
            unique,
            token,
            give,
        };
        self.calls.lock().unwrap().push(call);
        self.changed.notify_all();
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until so many wait.
    #[track_caller]
    pub fn wait_for(&self, number: usize) {
        let calls = self.calls.lock().unwrap();
        let misses = |calls: &mut Vec<LateCall>| calls.len() < number;
        let (calls, waited) = self
            .changed
            .wait_timeout_while(calls, PATIENCE, misses)
            .unwrap();
        let came = calls.len();
        drop(calls);
        assert!(!waited.timed_out(), "only {came} of {number} came");
    }

    /// Waits until so many wait, and takes all.
    #[track_caller]
    pub fn take(&self, number: usize) -> Vec<LateCall> {
        self.wait_for(number);
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

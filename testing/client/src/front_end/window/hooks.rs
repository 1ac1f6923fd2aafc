//! What tests see of a window's thread and how they hold it up.

use super::table::Refusal;
use super::wire;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What the back end has done with a window, counted since the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowCounts {
    /// Messages that were taken from the channel.
    pub messages: u64,
    /// Mappings that came into force.
    pub maps: u64,
    /// Mappings that the back end removed.
    pub unmaps: u64,
    /// Messages that were refused.
    pub refused: u64,
    /// The last refusal.
    pub last_refusal: Option<Refusal>,
    /// Messages that were answered.
    pub answers: u64,
    /// Mappings in force now.
    pub live: usize,
    /// Most mappings in force at once.
    pub live_max: usize,
    /// ADD_MEM_REG that the back end has confirmed.
    pub announced: u64,
    /// REM_MEM_REG that the back end has confirmed.
    pub withdrawn: u64,
    /// ADD_MEM_REG and REM_MEM_REG that it refused, or did not answer before the connection ended.
    pub announcements_failed: u64,
    /// Longest that an ADD_MEM_REG or REM_MEM_REG waited for its answer.
    pub announcement_wait_max: Duration,
    /// Whether the channel has ended.
    pub ended: bool,
}

#[derive(Default)]
struct State {
    counts: WindowCounts,
    paused: bool,
    /// A message is being carried out.
    busy: bool,
    closed: bool,
    withholding: bool,
    /// Codes and results of answers that are withheld, in their order.
    withheld: Vec<(u32, u64)>,
}

pub(super) struct Hooks {
    state: Mutex<State>,
    changed: Condvar,
}

/// Whether the thread may take a message.
pub(super) enum Turn {
    Now,
    Paused,
    Closed,
}

impl Hooks {
    pub(super) fn new(withholding: bool) -> Hooks {
        Hooks {
            state: Mutex::new(State {
                withholding,
                ..State::default()
            }),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn counts(&self) -> WindowCounts {
        self.state().counts
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut WindowCounts)) {
        change(&mut self.state().counts);
        self.changed.notify_all();
    }

    pub(super) fn wait_until(
        &self,
        limit: Duration,
        mut holds: impl FnMut(&WindowCounts) -> bool,
    ) -> bool {
        let state = self.state();
        let waited = self
            .changed
            .wait_timeout_while(state, limit, |state| !holds(&state.counts));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Takes no message from now on, and waits until the one in progress is done.
    pub(super) fn pause(&self) {
        let mut state = self.state();
        state.paused = true;
        let done = self.changed.wait_while(state, |state| state.busy);
        drop(done.unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn resume(&self) {
        self.state().paused = false;
        self.changed.notify_all();
    }

    /// Begins a message, if one may be taken now.
    pub(super) fn begin(&self) -> Turn {
        let mut state = self.state();
        if state.closed {
            return Turn::Closed;
        }
        if state.paused {
            return Turn::Paused;
        }
        state.busy = true;
        Turn::Now
    }

    pub(super) fn end(&self) {
        self.state().busy = false;
        self.changed.notify_all();
    }

    pub(super) fn wait_while_paused(&self) {
        let state = self.state();
        let waits = |state: &mut State| state.paused && !state.closed;
        let over = self.changed.wait_while(state, waits);
        drop(over.unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }

    /// Answers a message, or keeps the answer.
    pub(super) fn answer(&self, stream: &UnixStream, code: u32, result: u64) -> io::Result<()> {
        let mut state = self.state();
        if state.withholding {
            state.withheld.push((code, result));
            return Ok(());
        }
        state.counts.answers += 1;
        self.changed.notify_all();
        wire::reply(stream, code, result)
    }

    pub(super) fn withhold(&self) {
        self.state().withholding = true;
    }

    /// Sends the answers that were withheld.
    pub(super) fn answer_again(&self, stream: &UnixStream) -> io::Result<()> {
        let mut state = self.state();
        state.withholding = false;
        for (code, result) in std::mem::take(&mut state.withheld) {
            state.counts.answers += 1;
            wire::reply(stream, code, result)?;
        }
        self.changed.notify_all();
        Ok(())
    }

    pub(super) fn withheld(&self) -> usize {
        self.state().withheld.len()
    }
}

//! What the owner of a proxy asks of its thread, which may be busy with a front end that does not let it go on.

use super::state::ProxyState;
use crate::mailbox::signal;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;

#[derive(Debug)]
pub(super) enum Command {
    /// Another worker is at the other end.
    Attach(UnixStream),
    /// Read no further message.
    Hold(Question<bool>),
    Release,
    /// Answer with everything, and end.
    Suspend(Question<ProxyState>),
    End,
}

impl Command {
    /// Whether it ends the wait for the reply of a worker.
    fn is_urgent(&self) -> bool {
        matches!(self, Command::Attach(_) | Command::End)
    }
}

/// Answered once, unless it was withdrawn.
#[derive(Debug)]
pub(super) struct Question<T> {
    /// Whoever takes it away decides: the thread answers, or the owner waits no longer.
    is_open: Arc<AtomicBool>,
    answer: Answer<T>,
}

#[derive(Debug)]
pub(super) struct Answer<T>(Sender<T>);

impl<T> Question<T> {
    /// `None` if it was withdrawn; else it must be answered.
    pub(super) fn begin(self) -> Option<Answer<T>> {
        let is_open = self.is_open.swap(false, Ordering::SeqCst);
        is_open.then_some(self.answer)
    }

    pub(super) fn answer(self, answer: impl FnOnce() -> T) {
        if let Some(begun) = self.begin() {
            begun.give(answer());
        }
    }
}

impl<T> Answer<T> {
    pub(super) fn give(self, answer: T) {
        let _ = self.0.send(answer);
    }
}

/// The end of the owner.
#[derive(Debug)]
pub(super) struct Commander {
    commands: Sender<Command>,
    /// Signalled after each.
    eventfd: Arc<OwnedFd>,
}

/// The end of the thread.
#[derive(Debug)]
pub(super) struct Commands {
    received: Receiver<Command>,
    eventfd: Arc<OwnedFd>,
    waiting: VecDeque<Command>,
}

pub(super) fn event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

pub(super) fn commands() -> io::Result<(Commander, Commands)> {
    let eventfd = Arc::new(event()?);
    let (commands, received) = channel();
    let commander = Commander {
        commands,
        eventfd: Arc::clone(&eventfd),
    };
    let commands = Commands {
        received,
        eventfd,
        waiting: VecDeque::new(),
    };
    Ok((commander, commands))
}

impl Commander {
    /// Returns whether the thread runs.
    pub(super) fn send(&self, command: Command) -> bool {
        let is_sent = self.commands.send(command).is_ok();
        signal(self.eventfd.as_fd());
        is_sent
    }

    /// Asks, and waits for the answer.
    pub(super) fn ask<T>(
        &self,
        deadline: Instant,
        command: impl FnOnce(Question<T>) -> Command,
    ) -> io::Result<T> {
        let (sender, answer) = channel();
        let is_open = Arc::new(AtomicBool::new(true));
        let question = Question {
            is_open: Arc::clone(&is_open),
            answer: Answer(sender),
        };
        self.send(command(question));
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        let left = deadline.saturating_duration_since(Instant::now());
        match answer.recv_timeout(left) {
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
            Err(RecvTimeoutError::Timeout) if is_open.swap(false, Ordering::SeqCst) => {
                Err(io::ErrorKind::TimedOut.into())
            }
            // It is being answered.
            Err(RecvTimeoutError::Timeout) => answer.recv().map_err(|_| gone()),
        }
    }
}

impl Commands {
    /// Receives what was sent.
    pub(super) fn receive(&mut self) {
        let _ = rustix::io::read(&self.eventfd, &mut [0_u8; 8]);
        self.waiting.extend(self.received.try_iter());
    }

    /// Whether one of those that were received ends the wait for a worker.
    pub(super) fn are_urgent(&self) -> bool {
        self.waiting.iter().any(Command::is_urgent)
    }

    /// The next of those that were received.
    pub(super) fn take(&mut self) -> Option<Command> {
        self.waiting.pop_front()
    }
}

impl AsFd for Commands {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

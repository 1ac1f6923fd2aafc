//! Front ends that have connected and sent no message yet. They take no worker, and do not wait for each other.

use crate::foreign::Foreign;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// For the first message.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// Most of them. A further one replaces the one that has been silent longest.
const INCOMING_MAX: usize = 32;

/// The shortest message of a front end.
const HEADER_BYTES: usize = 12;

#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) stream: Foreign<OwnedFd>,
    /// `None` once its message has come: it waits for a worker.
    deadline: Option<Instant>,
}

/// What an incoming connection has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstMessage {
    None,
    Begun,
    /// It has disconnected, or sent what is no message: front ends send one at once.
    Never,
}

impl Incoming {
    pub(super) fn first_message(&self) -> FirstMessage {
        let mut header = [0_u8; HEADER_BYTES];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(&*self.stream, &mut header, flags) {
            Ok((_, HEADER_BYTES)) => FirstMessage::Begun,
            Err(Errno::AGAIN | Errno::INTR) => FirstMessage::None,
            Ok(_) | Err(_) => FirstMessage::Never,
        }
    }
}

impl AsFd for Incoming {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// In the order in which they have connected.
#[derive(Debug, Default)]
pub(super) struct AllIncoming(Vec<Incoming>);

impl AllIncoming {
    pub(super) fn all(&self) -> &[Incoming] {
        &self.0
    }

    /// Returns one that has to go.
    pub(super) fn add(&mut self, stream: Foreign<OwnedFd>) -> Option<Incoming> {
        let deadline = Some(Instant::now() + SILENCE_TIMEOUT);
        let replaced = (self.0.len() >= INCOMING_MAX).then(|| self.0.remove(0));
        self.0.push(Incoming { stream, deadline });
        replaced
    }

    pub(super) fn take(&mut self, index: usize) -> Incoming {
        self.0.remove(index)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.iter().filter_map(|one| one.deadline).min()
    }

    /// Those that are silent after their deadline.
    pub(super) fn take_silent(&mut self) -> Vec<Incoming> {
        let now = Instant::now();
        let is_silent = |one: &mut Incoming| {
            let is_over = one.deadline.is_some_and(|deadline| deadline <= now);
            if is_over && one.first_message() == FirstMessage::Begun {
                one.deadline = None;
            }
            is_over && one.deadline.is_some()
        };
        self.0.extract_if(.., is_silent).collect()
    }
}

//! Front ends that have connected and sent no message yet. They take no worker, and do not wait for each other.

use crate::foreign::Foreign;
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

impl Incoming {
    /// Whether it has sent its first message. One that is readable and has not is dropped: it has disconnected, or has
    /// sent what is no message, at which poll(2) returns without an end (an out-of-band byte: recv(2) has EAGAIN).
    pub(super) fn has_begun(&self) -> bool {
        let mut header = [0_u8; HEADER_BYTES];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        matches!(
            recv(&*self.stream, &mut header, flags),
            Ok((_, HEADER_BYTES))
        )
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

    pub(super) fn take_all(&mut self) -> Vec<Incoming> {
        std::mem::take(&mut self.0)
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
            if is_over && one.has_begun() {
                one.deadline = None;
            }
            is_over && one.deadline.is_some()
        };
        self.0.extract_if(.., is_silent).collect()
    }
}

//! One client of the control socket: a line per request, a line per reply.

use super::protocol::{Command, REQUEST_BYTES_MAX, Refusal, Reply};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

const CHUNK_BYTES: usize = 4096;

pub(crate) type Answer<'a> = dyn FnMut(&Command) -> Reply + 'a;

/// It buffers at most one request, one reply and the input after that request.
pub(super) struct ClientConnection {
    socket: OwnedFd,
    received: Vec<u8>,
    /// Length of the prefix without a line feed.
    searched: usize,
    reply: Vec<u8>,
    sent: usize,
    /// When it connected, or its last reply was sent.
    since: Instant,
    /// Close after the reply.
    is_last: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientState {
    Open,
    Over,
}

impl ClientConnection {
    pub(super) fn new(socket: OwnedFd) -> ClientConnection {
        ClientConnection {
            socket,
            received: Vec::new(),
            searched: 0,
            reply: Vec::new(),
            sent: 0,
            since: Instant::now(),
            is_last: false,
        }
    }

    /// Since when it has been idle, or has not read its reply.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// The poll events. While a reply is pending, nothing is read.
    pub(super) fn waits_for(&self) -> PollFlags {
        if self.reply.is_empty() {
            PollFlags::IN
        } else {
            PollFlags::OUT
        }
    }

    /// Whether a whole request is buffered.
    pub(super) fn has_request(&self) -> bool {
        self.reply.is_empty() && self.received[self.searched..].contains(&b'\n')
    }

    /// Proceeds without blocking, by one request at most, so that other clients have their turn.
    pub(super) fn advance(&mut self, answer: &mut Answer<'_>) -> ClientState {
        if self.reply.is_empty() {
            if !self.has_request() && self.receive() == ClientState::Over {
                return ClientState::Over;
            }
            match self.next_line() {
                Some(line) => {
                    let reply = match Command::decode(&line) {
                        Ok(command) => answer(&command),
                        Err(refusal) => Reply::Error(refusal),
                    };
                    self.answer_with(reply);
                }
                None if self.received.len() >= REQUEST_BYTES_MAX => {
                    // The start of the next request is unknown.
                    self.received = Vec::new();
                    self.is_last = true;
                    self.answer_with(Reply::Error(Refusal::too_long()));
                }
                None => return ClientState::Open,
            }
        }
        self.send()
    }

    fn answer_with(&mut self, reply: Reply) {
        self.reply = reply.encode().into_bytes();
        self.sent = 0;
        // The time for the answer does not count as idle.
        self.since = Instant::now();
    }

    fn receive(&mut self) -> ClientState {
        let mut chunk = [0; CHUNK_BYTES];
        let room = CHUNK_BYTES.min(REQUEST_BYTES_MAX.saturating_sub(self.received.len()));
        match recv(&self.socket, &mut chunk[..room], RecvFlags::DONTWAIT) {
            Ok((0, _)) => ClientState::Over,
            Ok((count, _)) => {
                self.received.extend_from_slice(&chunk[..count]);
                ClientState::Open
            }
            Err(Errno::AGAIN | Errno::INTR) => ClientState::Open,
            Err(_) => ClientState::Over,
        }
    }

    fn next_line(&mut self) -> Option<Vec<u8>> {
        let fresh = &self.received[self.searched..];
        let Some(at) = fresh.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.received.len();
            return None;
        };
        let end = self.searched + at;
        let rest = self.received.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.received, rest);
        self.searched = 0;
        line.truncate(end);
        Some(line)
    }

    fn send(&mut self) -> ClientState {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        while self.sent < self.reply.len() {
            match send(&self.socket, &self.reply[self.sent..], flags) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return ClientState::Open,
                Err(Errno::INTR) => {}
                Err(_) => return ClientState::Over,
            }
        }
        self.reply = Vec::new();
        self.since = Instant::now();
        if self.is_last {
            ClientState::Over
        } else {
            ClientState::Open
        }
    }
}

impl AsFd for ClientConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

//! One client of the control socket: a line per request, a line per reply.

use super::protocol::{Command, REQUEST_BYTES_MAX, Refusal, Reply};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

const CHUNK_BYTES: usize = 4096;

pub(crate) type Answer<'a> = dyn FnMut(&Command) -> Reply + 'a;

/// It buffers at most one request, one reply and the input after that request.
pub(super) struct ClientConnection {
    socket: OwnedFd,
    received: Vec<u8>,
    /// What is not sent yet.
    reply: Vec<u8>,
    /// When it connected, or its last reply was sent.
    since: Instant,
    /// Close after the reply.
    is_last: bool,
}

/// `Break`: the connection has ended.
pub(super) type ClientState = ControlFlow<()>;

impl ClientConnection {
    pub(super) fn new(socket: OwnedFd) -> ClientConnection {
        ClientConnection {
            socket,
            received: Vec::new(),
            reply: Vec::new(),
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
        self.reply.is_empty() && self.received.contains(&b'\n')
    }

    /// Proceeds without blocking, by one request at most, so that other clients have their turn.
    pub(super) fn advance(&mut self, answer: &mut Answer<'_>) -> ClientState {
        if self.reply.is_empty() {
            if !self.has_request() {
                self.receive()?;
            }
            let line = self.received.iter().position(|byte| *byte == b'\n');
            let reply = match line {
                Some(end) => {
                    let line: Vec<u8> = self.received.drain(..=end).collect();
                    Command::decode(&line[..end]).map_or_else(Reply::Error, |it| answer(&it))
                }
                None if self.received.len() >= REQUEST_BYTES_MAX => {
                    // The start of the next request is unknown.
                    self.received = Vec::new();
                    self.is_last = true;
                    Reply::Error(Refusal::too_long())
                }
                None => return ClientState::Continue(()),
            };
            self.reply = reply.encode().into_bytes();
            // The time for the answer does not count as idle.
            self.since = Instant::now();
        }
        self.send()
    }

    fn receive(&mut self) -> ClientState {
        let mut chunk = [0; CHUNK_BYTES];
        let room = CHUNK_BYTES.min(REQUEST_BYTES_MAX.saturating_sub(self.received.len()));
        match recv(&self.socket, &mut chunk[..room], RecvFlags::DONTWAIT) {
            Ok((count @ 1.., _)) => self.received.extend_from_slice(&chunk[..count]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(_) | Err(_) => return ClientState::Break(()),
        }
        ClientState::Continue(())
    }

    fn send(&mut self) -> ClientState {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(&self.socket, &self.reply, flags) {
            Ok(count) => drop(self.reply.drain(..count)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return ClientState::Break(()),
        }
        if self.reply.is_empty() {
            self.since = Instant::now();
            if self.is_last {
                return ClientState::Break(());
            }
        }
        ClientState::Continue(())
    }
}

impl AsFd for ClientConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

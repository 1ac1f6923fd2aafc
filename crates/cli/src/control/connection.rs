//! One client of a socket, as of the control socket: requests and replies in turn.

use super::protocol::{Command, REQUEST_BYTES_MAX, Refusal, Reply};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

const CHUNK_BYTES: usize = 4096;

pub(crate) type Answer<'a> = dyn FnMut(&Command) -> Reply + 'a;

/// How clients ask.
pub(crate) struct Protocol<'a> {
    /// What a request ends with.
    pub(crate) end: &'static [u8],
    /// With its end.
    pub(crate) request_bytes_max: usize,
    /// Whether a client has one request.
    pub(crate) is_for_one: bool,
    /// Whether others than the server's user and root may ask.
    pub(crate) is_for_all: bool,
    /// The reply to a request without its end, or to one that is too long.
    pub(crate) reply: &'a mut dyn FnMut(Option<&[u8]>) -> Vec<u8>,
}

/// The reply to a line of the control socket.
pub(crate) fn reply_to_line(line: Option<&[u8]>, answer: &mut Answer<'_>) -> Vec<u8> {
    let command = line.ok_or_else(Refusal::too_long).and_then(Command::decode);
    let reply = command.map_or_else(Reply::Error, |command| answer(&command));
    reply.encode().into_bytes()
}

impl<'a> Protocol<'a> {
    /// A line per request, a line per reply.
    pub(crate) fn of_lines(reply: &'a mut dyn FnMut(Option<&[u8]>) -> Vec<u8>) -> Protocol<'a> {
        Protocol {
            end: b"\n",
            request_bytes_max: REQUEST_BYTES_MAX,
            is_for_one: false,
            is_for_all: false,
            reply,
        }
    }
}

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
    pub(super) fn has_request(&self, protocol: &Protocol<'_>) -> bool {
        self.reply.is_empty() && self.length(protocol).is_some()
    }

    /// Of a buffered request, without its end.
    fn length(&self, protocol: &Protocol<'_>) -> Option<usize> {
        let mut ends = self.received.windows(protocol.end.len());
        ends.position(|bytes| bytes == protocol.end)
    }

    /// Proceeds without blocking, by one request at most, so that other clients have their turn.
    pub(super) fn advance(&mut self, protocol: &mut Protocol<'_>) -> ClientState {
        if self.reply.is_empty() {
            if !self.has_request(protocol) {
                self.receive(protocol.request_bytes_max)?;
            }
            self.reply = match self.length(protocol) {
                Some(length) => {
                    let rest = self.received.split_off(length + protocol.end.len());
                    let request = std::mem::replace(&mut self.received, rest);
                    self.is_last = protocol.is_for_one;
                    (protocol.reply)(Some(&request[..length]))
                }
                None if self.received.len() >= protocol.request_bytes_max => {
                    // The start of the next request is unknown.
                    self.received = Vec::new();
                    self.is_last = true;
                    (protocol.reply)(None)
                }
                None => return ClientState::Continue(()),
            };
            // The time for the answer does not count as idle.
            self.since = Instant::now();
        }
        self.send()
    }

    fn receive(&mut self, bytes_max: usize) -> ClientState {
        let mut chunk = [0; CHUNK_BYTES];
        let room = CHUNK_BYTES.min(bytes_max.saturating_sub(self.received.len()));
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

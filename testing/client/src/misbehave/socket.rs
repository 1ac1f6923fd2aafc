//! Raw vhost-user messages.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;

/// A message, valid or not.
pub(super) struct RawMessage {
    /// The request code.
    pub(super) request: u32,
    /// Flags: the version (1) in the lowest two bits, 4 for replies, 8 for NEED_REPLY.
    pub(super) flags: u32,
    /// The payload size in the header, right or wrong.
    pub(super) size: u32,
    /// The payload.
    pub(super) payload: Vec<u8>,
}

impl RawMessage {
    /// A message with the right payload size.
    pub(super) fn new(request: u32, payload: &[u8]) -> RawMessage {
        RawMessage {
            request,
            flags: 1,
            size: payload.len() as u32,
            payload: payload.to_vec(),
        }
    }

    /// The bytes on the socket.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(12 + self.payload.len());
        for number in [self.request, self.flags, self.size] {
            bytes.extend_from_slice(&number.to_ne_bytes());
        }
        bytes.extend_from_slice(&self.payload);
        bytes
    }
}

/// Whether the server closes the connection within the stream's read timeout. Discards what it sends.
pub(super) fn is_closed(mut stream: &UnixStream) -> io::Result<bool> {
    let mut heap = [0; 4096];
    loop {
        match stream.read(&mut heap) {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Ok(false),
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => return Ok(true),
                io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            },
        }
    }
}

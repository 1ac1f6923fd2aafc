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

/// Messages with one fault each.
pub(super) fn odd_messages() -> Vec<RawMessage> {
    const GET_FEATURES: u32 = 1;
    const SET_FEATURES: u32 = 2;
    const SET_MEM_TABLE: u32 = 5;
    const SET_VRING_NUM: u32 = 8;
    const SET_VRING_ADDR: u32 = 9;
    const SET_VRING_KICK: u32 = 12;
    const GET_CONFIG: u32 = 24;
    let numbers = |numbers: &[u32]| numbers.iter().flat_map(|one| one.to_ne_bytes()).collect();
    let rows: [(u32, u32, Option<u32>, Vec<u8>); 22] = [
        // Request 0, an unknown one, the largest.
        (0, 1, None, vec![]),
        (9999, 1, None, vec![1; 8]),
        (u32::MAX, 1, None, vec![]),
        // Versions 0 and 3, reserved flags, a reply.
        (GET_FEATURES, 0, None, vec![]),
        (GET_FEATURES, 3, None, vec![]),
        (GET_FEATURES, 0xffff_fff1, None, vec![]),
        (GET_FEATURES, 5, None, vec![0; 8]),
        // Payloads that are missing, short, long; sizes that are untrue.
        (SET_FEATURES, 1, None, vec![]),
        (SET_FEATURES, 1, None, vec![0; 4]),
        (SET_FEATURES, 1, None, vec![0; 16]),
        (SET_FEATURES, 1, Some(4096), vec![0; 8]),
        (SET_FEATURES, 1, Some(u32::MAX), vec![0; 8]),
        // Tables without regions, with more than there are, without descriptors.
        (SET_MEM_TABLE, 1, None, vec![0; 8]),
        (SET_MEM_TABLE, 1, None, numbers(&[200, 0, 0, 0])),
        (
            SET_MEM_TABLE,
            1,
            None,
            numbers(&[1, 0, 0, 0, 0x1000, 0, 0, 0, 0, 0]),
        ),
        // A queue that is absent; of sizes 0, odd, huge; nowhere; without an event.
        (SET_VRING_NUM, 1, None, numbers(&[60_000, 64])),
        (SET_VRING_NUM, 1, None, numbers(&[1, 0])),
        (SET_VRING_NUM, 1, None, numbers(&[1, 777])),
        (SET_VRING_NUM, 1, None, numbers(&[1, u32::MAX])),
        (SET_VRING_ADDR, 1, None, vec![0xff; 40]),
        (SET_VRING_KICK, 1, None, numbers(&[1, 0])),
        // Beyond the configuration.
        (GET_CONFIG, 1, None, numbers(&[u32::MAX, u32::MAX, 0])),
    ];
    let message = |(request, flags, size, payload): (u32, u32, Option<u32>, Vec<u8>)| RawMessage {
        flags,
        size: size.unwrap_or(payload.len() as u32),
        ..RawMessage::new(request, &payload)
    };
    rows.map(message).into()
}

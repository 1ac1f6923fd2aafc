//! Raw vhost-user messages.

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

/// Most descriptors of a message.
pub const DESCRIPTORS_MAX: usize = 64;

/// A message, valid or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawMessage {
    /// The request code.
    pub request: u32,
    /// Flags: the version (1) in the lowest two bits, 4 for replies, 8 for NEED_REPLY.
    pub flags: u32,
    /// The payload size in the header, right or wrong.
    pub size: u32,
    /// The payload.
    pub payload: Vec<u8>,
}

impl RawMessage {
    /// A message with the right payload size.
    #[must_use]
    pub fn new(request: u32, payload: &[u8]) -> RawMessage {
        RawMessage {
            request,
            flags: 1,
            size: payload.len() as u32,
            payload: payload.to_vec(),
        }
    }

    /// The bytes on the socket.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(12 + self.payload.len());
        for number in [self.request, self.flags, self.size] {
            bytes.extend_from_slice(&number.to_ne_bytes());
        }
        bytes.extend_from_slice(&self.payload);
        bytes
    }
}

/// Sends bytes with at most [`DESCRIPTORS_MAX`] descriptors. Returns the bytes sent.
///
/// # Errors
///
/// As `sendmsg(2)`; EPIPE when the server has closed the connection, without a signal.
pub fn send(
    stream: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let descriptors = &descriptors[..descriptors.len().min(DESCRIPTORS_MAX)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::NOSIGNAL;
    Ok(sendmsg(
        stream,
        &[IoSlice::new(bytes)],
        &mut ancillary,
        flags,
    )?)
}

/// Whether the server closes the connection within the stream's read timeout. Discards what it sends.
pub fn is_closed(mut stream: &UnixStream) -> io::Result<bool> {
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

/// Messages with one fault each, and its name.
#[must_use]
pub fn odd_messages() -> Vec<(&'static str, RawMessage)> {
    const SET_FEATURES: u32 = 2;
    const SET_MEM_TABLE: u32 = 5;
    const SET_VRING_NUM: u32 = 8;
    const SET_VRING_ADDR: u32 = 9;
    const SET_VRING_KICK: u32 = 12;
    const GET_CONFIG: u32 = 24;
    let with = |request: u32, flags: u32, size: u32, payload: Vec<u8>| RawMessage {
        request,
        flags,
        size,
        payload,
    };
    let numbers =
        |numbers: &[u32]| -> Vec<u8> { numbers.iter().flat_map(|one| one.to_ne_bytes()).collect() };
    vec![
        ("request-zero", RawMessage::new(0, &[])),
        ("request-unknown", RawMessage::new(9999, &[1; 8])),
        ("request-largest", RawMessage::new(u32::MAX, &[])),
        ("version-zero", with(1, 0, 0, vec![])),
        ("version-three", with(1, 3, 0, vec![])),
        ("flags-reserved", with(1, 0xffff_fff1, 0, vec![])),
        ("reply-unasked", with(1, 5, 8, vec![0; 8])),
        ("size-missing", with(SET_FEATURES, 1, 0, vec![])),
        ("size-short", with(SET_FEATURES, 1, 4, vec![0; 4])),
        ("size-long", with(SET_FEATURES, 1, 16, vec![0; 16])),
        ("size-untrue", with(SET_FEATURES, 1, 4096, vec![0; 8])),
        ("size-huge", with(SET_FEATURES, 1, u32::MAX, vec![0; 8])),
        ("table-empty", RawMessage::new(SET_MEM_TABLE, &[0; 8])),
        (
            "table-more-than-said",
            RawMessage::new(SET_MEM_TABLE, &numbers(&[200, 0, 0, 0])),
        ),
        (
            "table-without-descriptors",
            RawMessage::new(
                SET_MEM_TABLE,
                &numbers(&[1, 0, 0, 0, 0x1000, 0, 0, 0, 0, 0]),
            ),
        ),
        (
            "queue-absent",
            RawMessage::new(SET_VRING_NUM, &numbers(&[60_000, 64])),
        ),
        (
            "queue-size-zero",
            RawMessage::new(SET_VRING_NUM, &numbers(&[1, 0])),
        ),
        (
            "queue-size-odd",
            RawMessage::new(SET_VRING_NUM, &numbers(&[1, 777])),
        ),
        (
            "queue-size-huge",
            RawMessage::new(SET_VRING_NUM, &numbers(&[1, u32::MAX])),
        ),
        (
            "queue-nowhere",
            RawMessage::new(SET_VRING_ADDR, &[0xff; 40]),
        ),
        (
            "kick-without-descriptor",
            RawMessage::new(SET_VRING_KICK, &1_u64.to_ne_bytes()),
        ),
        (
            "config-beyond",
            RawMessage::new(GET_CONFIG, &numbers(&[u32::MAX, u32::MAX, 0])),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn bytes_arrive_as_they_are_and_closing_is_seen() {
        let (one, mut other) = UnixStream::pair().unwrap();
        let message = RawMessage {
            size: 1000,
            ..RawMessage::new(7, b"abc")
        };
        let file = std::fs::File::open("/dev/null").unwrap();
        let sent = send(&one, &message.bytes(), &[file.as_fd(); 3]).unwrap();
        assert_eq!(sent, 15);
        let mut bytes = [0; 15];
        other.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[8..12], 1000_u32.to_ne_bytes());
        assert_eq!(&bytes[12..], b"abc");
        one.set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        assert!(!is_closed(&one).unwrap());
        drop(other);
        assert!(is_closed(&one).unwrap());
        assert!(send(&one, b"x", &[]).is_err(), "and no signal");
    }
}

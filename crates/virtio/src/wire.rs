//! The format of vhost-user messages, for those that are forwarded, and for those of the DAX window.

use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use thrufs_sys::fd_passing;
use vhost::vhost_user::message::FrontendReq;

/// Header: code, flags and length of the body, four bytes each.
const HEADER_BYTES: usize = 12;
const BODY_BYTES_MAX: usize = 4096;
const FILES_MAX: usize = 32;

pub(crate) const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
pub(crate) const REPLY: u32 = 4;
pub(crate) const NEED_REPLY: u32 = 8;

#[derive(Debug)]
pub(crate) struct VhostMessage {
    pub(crate) code: u32,
    pub(crate) flags: u32,
    pub(crate) body: Vec<u8>,
    pub(crate) files: Vec<OwnedFd>,
}

impl VhostMessage {
    /// Which message it is; `None` for an unknown one, which is forwarded like any other.
    pub(crate) fn request(&self) -> Option<FrontendReq> {
        FrontendReq::try_from(self.code).ok()
    }

    pub(crate) fn u32_at(&self, at: usize) -> Option<u32> {
        let bytes = self.body.get(at..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    }

    pub(crate) fn u64_at(&self, at: usize) -> Option<u64> {
        let bytes = self.body.get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }

    /// Whether it is the reply, a number, to a request with this code.
    pub(crate) fn is_reply_to(&self, code: u32) -> bool {
        self.code == code
            && self.flags & REPLY != 0
            && self.files.is_empty()
            && self.body.len() == size_of::<u64>()
    }

    /// Sends it with `flags` instead of its own.
    pub(crate) fn send(&self, stream: impl AsFd, flags: u32) -> io::Result<()> {
        self.send_with(stream, flags, None)
    }

    /// As [`send`](Self::send), with one more descriptor.
    pub(crate) fn send_with(
        &self,
        stream: impl AsFd,
        flags: u32,
        file: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let files = self.files.iter().map(AsFd::as_fd).chain(file);
        let files: Vec<BorrowedFd<'_>> = files.collect();
        send(stream.as_fd(), self.code, flags, &self.body, &files)
    }
}

pub(crate) fn send(
    stream: BorrowedFd<'_>,
    code: impl Into<u32>,
    flags: u32,
    body: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = encode(code.into(), flags, body);
    if files.len() > FILES_MAX {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    let mut sent = fd_passing::send(stream, &bytes, files)?;
    while sent < bytes.len() {
        sent += fd_passing::send(stream, &bytes[sent..], &[])?;
    }
    Ok(())
}

fn encode(code: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    let length = body.len() as u32;
    let flags = flags & !VERSION_MASK | VERSION;
    let header = [code, flags, length].map(u32::to_ne_bytes).concat();
    [&header, body].concat()
}

/// A message to a peer that may not be reading.
#[derive(Debug)]
pub(crate) struct Outgoing {
    unsent: Vec<u8>,
    /// Sent with the first byte.
    files: Vec<OwnedFd>,
}

impl Outgoing {
    pub(crate) fn new(message: VhostMessage) -> Outgoing {
        Outgoing {
            unsent: encode(message.code, message.flags, &message.body),
            files: message.files,
        }
    }

    pub(crate) fn of_parts(unsent: Vec<u8>, files: Vec<OwnedFd>) -> Outgoing {
        Outgoing { unsent, files }
    }

    /// What is not sent.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Vec<OwnedFd>) {
        (self.unsent, self.files)
    }

    pub(crate) fn is_sent(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Sends what fits into the socket's buffer.
    pub(crate) fn send(&mut self, stream: impl AsFd) -> io::Result<()> {
        while !self.is_sent() {
            let files: Vec<BorrowedFd<'_>> = self.files.iter().map(AsFd::as_fd).collect();
            let sent = match fd_passing::send_now(stream.as_fd(), &self.unsent, &files) {
                Err(Errno::AGAIN) => return Ok(()),
                sent => sent?,
            };
            self.unsent.drain(..sent);
            self.files.clear();
        }
        Ok(())
    }
}

/// Reassembles messages.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    bytes: Vec<u8>,
    files: Vec<OwnedFd>,
}

impl Reader {
    pub(crate) fn of_parts(bytes: Vec<u8>, files: Vec<OwnedFd>) -> Reader {
        Reader { bytes, files }
    }

    /// What has arrived of a message.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Vec<OwnedFd>) {
        (self.bytes, self.files)
    }

    /// The next message, once it is complete.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` at the end, `InvalidData` for a malformed message.
    pub(crate) fn read(&mut self, stream: impl AsFd) -> io::Result<Option<VhostMessage>> {
        loop {
            let wanted = self.wanted()?;
            if wanted == self.bytes.len() {
                return Ok(Some(self.take()));
            }
            if !self.read_some(stream.as_fd(), wanted)? {
                return Ok(None);
            }
        }
    }

    /// Bytes of the message, as far as they are known.
    fn wanted(&self) -> io::Result<usize> {
        let Some(length) = self.word(2) else {
            return Ok(HEADER_BYTES);
        };
        let length = length as usize;
        if length > BODY_BYTES_MAX || self.word(1).unwrap_or(0) & VERSION_MASK != VERSION {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(HEADER_BYTES + length)
    }

    fn word(&self, number: usize) -> Option<u32> {
        if self.bytes.len() < HEADER_BYTES {
            return None;
        }
        let bytes = self.bytes.get(4 * number..4 * number + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    }

    fn take(&mut self) -> VhostMessage {
        let (code, flags) = (self.word(0).unwrap_or(0), self.word(1).unwrap_or(0));
        let body = self.bytes.split_off(HEADER_BYTES);
        self.bytes.clear();
        VhostMessage {
            code,
            flags,
            body,
            files: std::mem::take(&mut self.files),
        }
    }

    /// False when no bytes are pending.
    fn read_some(&mut self, stream: BorrowedFd<'_>, wanted: usize) -> io::Result<bool> {
        let before = self.bytes.len();
        self.bytes.resize(wanted, 0);
        let received = fd_passing::receive(stream, &mut self.bytes[before..], RecvFlags::DONTWAIT);
        let count = received.as_ref().map_or(0, |received| received.bytes);
        self.bytes.truncate(before + count);
        let received = match received {
            Err(Errno::AGAIN) => return Ok(false),
            received => received?,
        };
        if !received.is_whole {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.files.extend(received.descriptors);
        if self.files.len() > FILES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(true)
    }
}

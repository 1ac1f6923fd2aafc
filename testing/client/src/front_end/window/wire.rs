//! Messages of the back-end channel: a header of 12 bytes, a body, and descriptors.

use rustix::net::RecvFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use thrufs_sys::fd_passing;

/// Code, flags and length of the body, four bytes each.
const HEADER_BYTES: usize = 12;
/// `VHOST_USER_MAX_MSG_SIZE` of the crate `vhost`.
const BODY_BYTES_MAX: usize = 4096;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 1 << 2;
pub(super) const NEED_REPLY: u32 = 1 << 3;

/// `VHOST_USER_BACKEND_SHMEM_MAP`, with one descriptor.
pub(super) const SHMEM_MAP: u32 = 9;
/// `VHOST_USER_BACKEND_SHMEM_UNMAP`.
pub(super) const SHMEM_UNMAP: u32 = 10;

/// The shared memory region that is the window: `VIRTIO_FS_SHMCAP_ID_CACHE` of the kernel.
pub(super) const REGION: u8 = 0;

const BODY_BYTES: usize = 40;
/// The only flag: mapped for reading and writing. Without it, for reading.
pub(super) const WRITABLE: u64 = 1;

pub(super) struct Message {
    pub(super) code: u32,
    pub(super) flags: u32,
    pub(super) body: Vec<u8>,
    pub(super) files: Vec<OwnedFd>,
}

/// `VhostUserMMap` of the specification, the body of SHMEM_MAP and SHMEM_UNMAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) region: u8,
    pub(super) file_offset: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) flags: u64,
}

impl Piece {
    /// `None` for a body of another length.
    pub(super) fn parse(body: &[u8]) -> Option<Piece> {
        let body: &[u8; BODY_BYTES] = body.try_into().ok()?;
        let word = |at: usize| {
            body[at..]
                .first_chunk()
                .map(|word| u64::from_ne_bytes(*word))
        };
        Some(Piece {
            region: body[0],
            file_offset: word(8)?,
            offset: word(16)?,
            length: word(24)?,
            flags: word(32)?,
        })
    }
}

/// The next message, waiting for it; `None` at the end of the stream.
///
/// # Errors
///
/// `InvalidData` for a malformed header, `UnexpectedEof` within a message; those of the socket.
pub(super) fn receive(stream: impl AsFd) -> io::Result<Option<Message>> {
    let mut header = [0; HEADER_BYTES];
    let mut files = Vec::new();
    if !fill(stream.as_fd(), &mut header, &mut files)? {
        return Ok(None);
    }
    let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| header[at + byte]));
    let (code, flags, length) = (word(0), word(4), word(8) as usize);
    if flags & VERSION_MASK != VERSION || length > BODY_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    if length > 0 && !fill(stream.as_fd(), &mut body, &mut files)? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(Message {
        code,
        flags,
        body,
        files,
    }))
}

/// Fills `bytes`; false when the stream ends before them.
fn fill(stream: BorrowedFd<'_>, bytes: &mut [u8], files: &mut Vec<OwnedFd>) -> io::Result<bool> {
    let mut done = 0;
    while done < bytes.len() {
        let received = fd_passing::receive(stream, &mut bytes[done..], RecvFlags::empty())?;
        match received.bytes {
            0 if done == 0 => return Ok(false),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => done += count,
        }
        files.extend(received.descriptors);
    }
    Ok(true)
}

/// Answers a message: 0 when it was done.
pub(super) fn reply(stream: impl AsFd, code: u32, result: u64) -> io::Result<()> {
    send(stream, code, VERSION | REPLY, &result.to_ne_bytes(), &[])
}

pub(super) fn send(
    stream: impl AsFd,
    code: u32,
    flags: u32,
    body: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let header = [code, flags, body.len() as u32].map(u32::to_ne_bytes);
    let bytes = [header.as_flattened(), body].concat();
    let mut sent = fd_passing::send(stream.as_fd(), &bytes, files)?;
    while sent < bytes.len() {
        sent += fd_passing::send(stream.as_fd(), &bytes[sent..], &[])?;
    }
    Ok(())
}

//! The descriptor and the two buffers of one worker: reads a request, and writes or splices its reply.

use super::pipe::ReplyPipe;
use crate::dispatch::FileReply;
use crate::reply::HEADER_BYTES;
use crate::transport::Connection;
use rustix::io::{IoSlice, Result};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use thrufs_abi::layout::{InHeader, WriteIn};
use thrufs_abi::{Opcode, Unique};
use thrufs_sys::buffer::PageBuffer;
use thrufs_sys::fuse_dev::clone_channel;
use zerocopy::FromBytes;

const PAGE: usize = 4096;

/// The headers before the data of a WRITE.
const WRITE_HEAD_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// Data of a WRITE and of a READ start on a page: copies from page to page are the cheapest.
const REQUEST_START: usize = PAGE - WRITE_HEAD_BYTES;
const REPLY_START: usize = PAGE - HEADER_BYTES;

/// The largest request without data: an attribute of 64 KiB, its name and the headers. Above the
/// kernel's minimum (`FUSE_MIN_READ_BUFFER`).
const REQUEST_BYTES_MIN: usize = 80 << 10;
/// The largest reply without data: an extended attribute.
const BODY_BYTES_MIN: usize = 64 << 10;

/// Bytes of each buffer that a standby worker keeps.
const KEPT_BYTES: usize = 4 * PAGE;

#[derive(Debug)]
pub(super) struct Buffers {
    channel: Arc<Channel>,
    request: PageBuffer,
    /// The memory for requests is never missing: if this process is killed while the kernel waits for a page to copy
    /// a request to, that fails with EIO, and does not come again.
    stays: bool,
    reply: PageBuffer,
    pipe: ReplyPipe,
}

/// Where a request was read, and its reply is written. A reply that comes later keeps it open: the kernel aborts
/// the requests of a channel that is closed.
#[derive(Debug)]
pub(super) enum Channel {
    /// Cloned from the session's device: its list of requests in progress and its lock are its own.
    Own(OwnedFd),
    /// The session's own: cloning failed, or another process goes on with the session.
    Shared(OwnedFd),
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Channel::Own(descriptor) | Channel::Shared(descriptor) => descriptor.as_fd(),
        }
    }
}

impl Channel {
    /// Writes a reply in two parts.
    pub(super) fn write(&self, head: &[u8], data: &[u8]) -> Result<()> {
        loop {
            match rustix::io::writev(self, &[IoSlice::new(head), IoSlice::new(data)]) {
                Err(rustix::io::Errno::INTR) => {}
                result => return result.map(drop),
            }
        }
    }
}

impl Buffers {
    /// Buffers for requests and replies with at most `data_bytes_max` bytes of data.
    pub(super) fn new<F>(connection: &Connection<F>, data_bytes_max: u32) -> io::Result<Buffers> {
        let device = connection.device.as_fd();
        // What was read by a clone fails when its last descriptor is closed, as when this process dies.
        let own = match connection.writer {
            Some(_) => None,
            None => clone_channel(device).ok(),
        };
        let channel = match own {
            Some(channel) => Channel::Own(channel),
            // A confined process cannot open /dev/fuse; or no descriptor is left.
            None => Channel::Shared(rustix::io::fcntl_dupfd_cloexec(device, 3)?),
        };
        let data = data_bytes_max as usize;
        let request = REQUEST_START + REQUEST_BYTES_MIN.max(WRITE_HEAD_BYTES + data);
        let reply = REPLY_START + HEADER_BYTES + BODY_BYTES_MIN.max(data);
        let mut request = PageBuffer::new(request)?;
        let stays = connection.writer.is_some();
        if stays {
            request.populate()?;
        }
        Ok(Buffers {
            channel: Arc::new(channel),
            request,
            stays,
            reply: PageBuffer::new(reply)?,
            pipe: ReplyPipe::default(),
        })
    }

    pub(super) fn channel(&self) -> Arc<Channel> {
        Arc::clone(&self.channel)
    }

    pub(super) fn read(&mut self) -> Result<usize> {
        rustix::io::read(&*self.channel, &mut self.request[REQUEST_START..])
    }

    /// The caller's thread id in the request of `length` bytes; zero when it has no caller.
    pub(super) fn caller(&self, length: usize) -> u32 {
        let request = &self.request[REQUEST_START..REQUEST_START + length];
        InHeader::ref_from_prefix(request).map_or(0, |(header, _)| header.pid)
    }

    /// Number and operation of the request of `length` bytes.
    pub(super) fn head(&self, length: usize) -> (Unique, Option<Opcode>) {
        let request = &self.request[REQUEST_START..REQUEST_START + length];
        InHeader::ref_from_prefix(request).map_or((Unique(0), None), |(header, _)| {
            (Unique(header.unique), Opcode::from_u32(header.opcode))
        })
    }

    pub(super) fn split(&mut self, length: usize) -> (&[u8], &mut [u8]) {
        let request = &self.request[REQUEST_START..REQUEST_START + length];
        (request, &mut self.reply[REPLY_START..])
    }

    pub(super) fn request_and_reply(&self, request: usize, reply: usize) -> (&[u8], &[u8]) {
        (
            &self.request[REQUEST_START..REQUEST_START + request],
            &self.reply[REPLY_START..REPLY_START + reply],
        )
    }

    pub(super) fn write(&self, length: usize) -> Result<()> {
        let reply = &self.reply[REPLY_START..REPLY_START + length];
        loop {
            match rustix::io::write(&*self.channel, reply) {
                Err(rustix::io::Errno::INTR) => {}
                result => return result.map(drop),
            }
        }
    }

    /// Splices the reply that `file_reply` describes, with `bytes` bytes of its file. False when nothing
    /// was sent, and the bytes have to be read and written.
    pub(super) fn splice(&mut self, file_reply: &FileReply, bytes: usize) -> bool {
        let header = file_reply.header(bytes);
        let (device, file) = (self.channel.as_fd(), &**file_reply.file());
        let offset = file_reply.offset();
        self.pipe.send(device, &header, file, offset, bytes)
    }

    /// Releases the memory that large requests left behind.
    pub(super) fn release_memory(&mut self) {
        self.pipe.release();
        let request = (!self.stays).then_some(&mut self.request);
        for buffer in request.into_iter().chain([&mut self.reply]) {
            let end = buffer.len();
            // madvise(2) that fails costs memory and nothing else.
            let _ = buffer.release(KEPT_BYTES.min(end)..end);
        }
    }
}

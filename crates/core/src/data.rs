//! Data of READ and WRITE, described rather than copied.
//!
//! A file system that serves lower files never touches their bytes: a read names a file and an offset
//! ([`ReadReply::file`]), a write gets a source that can be sent to a file ([`WriteSource::write_to`]).
//! The transport moves the bytes in the way that suits its memory.

use crate::errno::{Errno, Result};
use rustix::io::{IoSlice, IoSliceMut, ReadWriteFlags};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use thrufs_sys::cache;

/// Data are cached in pages of this size or a multiple of it.
const PAGE_BYTES: u64 = 4096;

/// Whether I/O on a lower file can sleep, and whether `RWF_NOWAIT` avoids that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoWait {
    /// Reads accept `RWF_NOWAIT`: only a read of an uncached page leaves the thread.
    Supported,
    /// The file lives in memory (tmpfs, ramfs, hugetlbfs): I/O never waits for a device.
    Memory,
    /// Unknown: every read may sleep, and is deferred.
    Unsupported,
}

/// An open lower file. Shared by `Arc`, so that a transport keeps it open while I/O is in flight.
#[derive(Debug)]
pub struct LowerFile {
    fd: OwnedFd,
    no_wait: NoWait,
}

impl LowerFile {
    /// Takes a descriptor that was opened for I/O (not `O_PATH`). It must not have `O_APPEND`: the client's
    /// page cache writes at offsets of its own.
    pub fn new(fd: OwnedFd, no_wait: NoWait) -> LowerFile {
        LowerFile { fd, no_wait }
    }

    /// Returns the descriptor.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Whether reads of this file can be tried without sleeping.
    pub fn no_wait(&self) -> NoWait {
        self.no_wait
    }

    /// How many of `length` bytes at `offset` the file has.
    pub(crate) fn available(&self, offset: u64, length: usize) -> usize {
        let size = rustix::fs::fstat(&self.fd).map_or(0, |stat| stat.st_size.cast_unsigned());
        usize::try_from(size.saturating_sub(offset)).map_or(length, |left| left.min(length))
    }

    /// Whether `length` bytes at `offset` are in memory, as far as the kernel tells.
    pub(crate) fn is_in_memory(&self, offset: u64, length: usize) -> bool {
        match self.no_wait {
            NoWait::Memory => true,
            NoWait::Supported => cache::is_cached(&self.fd, offset, length as u64) == Ok(true),
            NoWait::Unsupported => false,
        }
    }

    /// Reads at `offset` until `buffer` is full, the file ends or an error occurs; one system call
    /// when the file has the bytes.
    ///
    /// # Errors
    /// [`Errno::DEFER`] when `may_block` is false and the bytes are not in memory; else the lower
    /// file system's own error, unless some bytes were read before it.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64, may_block: bool) -> Result<usize> {
        self.read_by(buffer.len(), offset, may_block, |part| {
            let rest = &mut buffer[part.filled..];
            let flags = if part.no_wait {
                ReadWriteFlags::NOWAIT
            } else {
                ReadWriteFlags::empty()
            };
            rustix::io::preadv2(&self.fd, &mut [IoSliceMut::new(rest)], part.offset, flags)
        })
    }

    /// As [`read_at`](Self::read_at), for a transport with memory of another kind: `read` is one system call.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn read_by(
        &self,
        length: usize,
        offset: u64,
        may_block: bool,
        mut read: impl FnMut(ReadPart) -> rustix::io::Result<usize>,
    ) -> Result<usize> {
        let no_wait = match (may_block, self.no_wait) {
            (true, _) | (false, NoWait::Memory) => false,
            (false, NoWait::Supported) => true,
            (false, NoWait::Unsupported) => return Err(Errno::DEFER),
        };
        let mut filled = 0;
        while filled < length {
            let part = ReadPart {
                filled,
                offset: offset.checked_add(filled as u64).ok_or(Errno::EINVAL)?,
                no_wait,
            };
            match read(part) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(rustix::io::Errno::INTR) => {}
                // A partly cached range is read again as a whole: the caller defers.
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::OPNOTSUPP) if !may_block => {
                    return Err(Errno::DEFER);
                }
                Err(error) if filled == 0 => return Err(error.into()),
                Err(_) => break,
            }
            // A short read ends at the end of the file, or with NOWAIT at the end of what is cached: a page
            // boundary.
            let end = offset.saturating_add(filled as u64);
            if !no_wait || !end.is_multiple_of(PAGE_BYTES) {
                break;
            }
        }
        Ok(filled.min(length))
    }
}

/// One of the system calls by which a file is read, see [`LowerFile::read_by`].
#[derive(Clone, Copy, Debug)]
pub struct ReadPart {
    /// Bytes that are in the buffer already.
    pub filled: usize,
    /// Offset of the next ones in the file.
    pub offset: u64,
    /// Whether to pass `RWF_NOWAIT`.
    pub no_wait: bool,
}

impl AsFd for LowerFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The reply to a READ. Consumed by exactly one of its methods.
#[derive(Debug)]
pub struct ReadReply<'a> {
    buffer: &'a mut [u8],
}

/// Proof that a [`ReadReply`] was answered.
#[derive(Debug)]
pub struct ReadAnswer(pub(crate) ReadSource);

#[derive(Debug)]
pub(crate) enum ReadSource {
    /// So many bytes, at the start of the reply's buffer.
    InPlace(usize),
    /// Of a file, which the transport moves.
    File(FileRange),
}

/// At most `length` bytes of `file` at `offset`.
#[derive(Debug)]
pub(crate) struct FileRange {
    pub(crate) file: Arc<LowerFile>,
    pub(crate) offset: u64,
    pub(crate) length: usize,
}

impl<'a> ReadReply<'a> {
    pub(crate) fn new(buffer: &'a mut [u8]) -> ReadReply<'a> {
        ReadReply { buffer }
    }

    /// The most bytes of the reply.
    pub fn size(&self) -> usize {
        self.buffer.len()
    }

    /// Replies with these bytes, cut to [`size`](Self::size). Fewer bytes than asked mean end of file.
    pub fn bytes(self, bytes: &[u8]) -> ReadAnswer {
        let length = bytes.len().min(self.buffer.len());
        self.buffer[..length].copy_from_slice(&bytes[..length]);
        ReadAnswer(ReadSource::InPlace(length))
    }

    /// Replies with what `fill` writes to the start of the buffer; `fill` returns how many bytes.
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn fill(self, fill: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<ReadAnswer> {
        let length = fill(self.buffer)?.min(self.buffer.len());
        Ok(ReadAnswer(ReadSource::InPlace(length)))
    }

    /// Replies with the bytes of `file` at `offset`, as many as were asked for and exist.
    pub fn file(self, file: Arc<LowerFile>, offset: u64) -> ReadAnswer {
        let length = self.buffer.len();
        ReadAnswer(ReadSource::File(FileRange {
            file,
            offset,
            length,
        }))
    }
}

/// Data of a transport that is no slice, because others write to its memory.
pub trait OutOfLineData: fmt::Debug {
    /// How many bytes there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the data from `skip` on to `target`, as much as fits, and returns how much that was.
    fn copy_to(&self, skip: usize, target: &mut [u8]) -> usize;

    /// Writes the data from `skip` on to `file` at `offset`, by one system call, and returns how much it
    /// took.
    ///
    /// # Errors
    /// The system call's.
    fn write_to(&self, skip: usize, file: BorrowedFd<'_>, offset: u64)
    -> rustix::io::Result<usize>;
}

/// The data of a WRITE, wherever the transport has them.
#[derive(Clone, Copy, Debug)]
pub struct WriteSource<'a> {
    data: Data<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Data<'a> {
    Here(&'a [u8]),
    OutOfLine(&'a dyn OutOfLineData),
}

impl<'a> WriteSource<'a> {
    pub(crate) fn from_bytes(bytes: &'a [u8]) -> WriteSource<'a> {
        WriteSource {
            data: Data::Here(bytes),
        }
    }

    /// Data of a transport, for [`Message::OutOfLine`](crate::Message::OutOfLine).
    pub fn out_of_line(data: &'a dyn OutOfLineData) -> WriteSource<'a> {
        WriteSource {
            data: Data::OutOfLine(data),
        }
    }

    /// How many bytes there are to write.
    pub fn len(&self) -> usize {
        match self.data {
            Data::Here(bytes) => bytes.len(),
            Data::OutOfLine(data) => data.len(),
        }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The data, where they are a slice; `None` over virtio-fs, where [`copy_to`](Self::copy_to) copies them.
    pub fn as_bytes(&self) -> Option<&'a [u8]> {
        match self.data {
            Data::Here(bytes) => Some(bytes),
            Data::OutOfLine(_) => None,
        }
    }

    /// Copies the data to `target`, as much as fits, and returns how much that was.
    pub fn copy_to(&self, target: &mut [u8]) -> usize {
        match self.data {
            Data::Here(bytes) => {
                let length = bytes.len().min(target.len());
                target[..length].copy_from_slice(&bytes[..length]);
                length
            }
            Data::OutOfLine(data) => data.copy_to(0, target).min(target.len()),
        }
    }

    /// Writes all data to `file` at `offset`, in one system call if the file takes them at once. Returns the
    /// bytes written; fewer than [`len`](Self::len) when an error came later.
    ///
    /// # Errors
    /// The lower file system's own, when nothing was written.
    pub fn write_to(&self, file: &LowerFile, offset: u64) -> Result<usize> {
        let length = self.len();
        let mut written = 0;
        while written < length {
            let at = offset.checked_add(written as u64).ok_or(Errno::EFBIG)?;
            let taken = match self.data {
                Data::Here(bytes) => {
                    let rest = IoSlice::new(&bytes[written..]);
                    rustix::io::pwritev2(&file.fd, &[rest], at, ReadWriteFlags::empty())
                }
                Data::OutOfLine(data) => data.write_to(written, file.fd.as_fd(), at),
            };
            match taken {
                Ok(0) => break,
                Ok(n) => written += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) if written == 0 => return Err(error.into()),
                Err(_) => break,
            }
        }
        Ok(written.min(length))
    }
}

//! A memory map of a file.
//!
//! # Safety
//!
//! Another writer can change mapped bytes at any time, and access beyond the end of the file is SIGBUS. So this
//! type gives no reference to the mapped bytes: it copies in and out, byte by byte, with volatile accesses,
//! within the mapped length. A test that accesses what was truncated is killed; nothing worse happens.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

/// A map of the first bytes of a file, unmapped when dropped.
pub struct Mapping {
    start: *mut u8,
    len: usize,
}

// SAFETY: a map is of the process, and no thread has a part in it.
unsafe impl Send for Mapping {}

/// Whether stores reach the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// `MAP_SHARED`, readable and writable.
    Shared,
    /// `MAP_SHARED`, readable only.
    SharedRead,
    /// `MAP_PRIVATE`, readable and writable.
    Private,
}

impl Mapping {
    /// Maps the first `len` bytes of a file.
    pub fn new(file: impl AsFd, len: usize, sharing: Sharing) -> io::Result<Self> {
        let (protection, flags) = match sharing {
            Sharing::Shared => (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED),
            Sharing::SharedRead => (ProtFlags::READ, MapFlags::SHARED),
            Sharing::Private => (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE),
        };
        // SAFETY: without a fixed address the kernel picks memory that nothing else uses.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), len, protection, flags, file, 0)? };
        Ok(Self {
            start: start.cast(),
            len,
        })
    }

    /// Copies `len` bytes at `offset` out of the map.
    #[track_caller]
    pub fn load(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len, "within the map");
        let byte = |at| {
            // SAFETY: `at` is within the map, see above.
            let place = unsafe { self.start.add(at) };
            // SAFETY: the map lives as long as `self`; volatile, as others may write.
            unsafe { place.read_volatile() }
        };
        (offset..offset + len).map(byte).collect()
    }

    /// Writes the first byte of the map, followed by `rest`, to the beginning of a file by one call.
    pub fn write_with(&self, rest: &[u8], file: impl AsFd) -> io::Result<usize> {
        let pieces = [
            libc::iovec {
                iov_base: self.start.cast(),
                iov_len: self.len.min(1),
            },
            libc::iovec {
                iov_base: rest.as_ptr().cast_mut().cast(),
                iov_len: rest.len(),
            },
        ];
        let file = file.as_fd().as_raw_fd();
        // SAFETY: both pieces are readable for their length as long as the call takes, which only reads.
        let written = unsafe { libc::pwritev(file, pieces.as_ptr(), 2, 0) };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }

    /// Reads a file at `at` into this range of the map by one call, pread(2). The map must be writable.
    #[track_caller]
    pub fn read_from(
        &mut self,
        range: Range<usize>,
        file: impl AsFd,
        at: u64,
    ) -> io::Result<usize> {
        let place = self.place(&range);
        let (file, at) = (file.as_fd().as_raw_fd(), at.cast_signed());
        // SAFETY: the range is writable as long as the call takes, and no reference into it exists.
        let read = unsafe { libc::pread(file, place.cast(), range.len(), at) };
        usize::try_from(read).map_err(|_| io::Error::last_os_error())
    }

    /// Lists a directory into the map by one call, getdents64(2). The map must be writable.
    pub fn list(&mut self, directory: impl AsFd) -> io::Result<usize> {
        let directory = directory.as_fd().as_raw_fd();
        // SAFETY: the map is writable as long as the call takes, and no reference into it exists.
        let listed =
            unsafe { libc::syscall(libc::SYS_getdents64, directory, self.start, self.len) };
        usize::try_from(listed).map_err(|_| io::Error::last_os_error())
    }

    /// Writes this range of the map to a file at `at` by one call, pwrite(2).
    #[track_caller]
    pub fn write_to(&self, range: Range<usize>, file: impl AsFd, at: u64) -> io::Result<usize> {
        let place = self.place(&range);
        let (file, at) = (file.as_fd().as_raw_fd(), at.cast_signed());
        // SAFETY: the range is readable as long as the call takes, which only reads.
        let written = unsafe { libc::pwrite(file, place.cast(), range.len(), at) };
        usize::try_from(written).map_err(|_| io::Error::last_os_error())
    }

    #[track_caller]
    fn place(&self, range: &Range<usize>) -> *mut u8 {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "within the map"
        );
        // SAFETY: it is within the map, see above.
        unsafe { self.start.add(range.start) }
    }

    /// Copies `bytes` into the map at `offset`. The map must be writable.
    #[track_caller]
    pub fn store(&mut self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len, "within the map");
        for (at, byte) in bytes.iter().enumerate() {
            // SAFETY: `offset + at` is within the map, see above.
            let place = unsafe { self.start.add(offset + at) };
            // SAFETY: the map lives as long as `self`.
            unsafe { place.write_volatile(*byte) };
        }
    }

    /// `msync(2)` of the whole map with `MS_SYNC`.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is the map.
        unsafe { rustix::mm::msync(self.start.cast(), self.len, MsyncFlags::SYNC)? };
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the map, and no reference into it exists.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.len) };
    }
}

//! A file mapped into memory, read and written by copying only.
//!
//! # Safety
//!
//! A map of a file can change at any moment, so no reference to it is given out: bytes are copied in and out
//! within its length. The rows do not shrink the files that they map, and each process has a file of its own.

#![allow(unsafe_code)]

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::fs::File;
use std::io;

/// A file that is mapped, `MAP_SHARED`.
pub(crate) struct Mapped {
    start: *mut std::ffi::c_void,
    length: usize,
    writable: bool,
}

impl Mapped {
    /// The whole of `file`, which is open for what is asked for. `advice` says in which order it will be used:
    /// the kernel would read much around each page that is touched.
    pub(crate) fn new(file: &File, writable: bool, advice: Advice) -> io::Result<Mapped> {
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let mut protection = ProtFlags::READ;
        protection.set(ProtFlags::WRITE, writable);
        let null = std::ptr::null_mut();
        // SAFETY: without a fixed address the kernel picks memory that nothing else uses.
        let start =
            unsafe { rustix::mm::mmap(null, length, protection, MapFlags::SHARED, file, 0) }?;
        let mapped = Mapped {
            start,
            length,
            writable,
        };
        // SAFETY: of the mapping; what is advised changes nothing that is read.
        unsafe { rustix::mm::madvise(start, length, advice)? };
        Ok(mapped)
    }

    /// Fills `buffer` with what stands at `offset`.
    pub(crate) fn copy_out(&self, offset: usize, buffer: &mut [u8]) {
        let place = self.place(offset, buffer.len());
        // SAFETY: readable and within the mapping, as `place` has seen; the buffer is no part of it.
        unsafe { std::ptr::copy_nonoverlapping(place, buffer.as_mut_ptr(), buffer.len()) };
    }

    /// Puts `bytes` at `offset`.
    pub(crate) fn copy_in(&self, offset: usize, bytes: &[u8]) {
        assert!(self.writable, "mapped to be written");
        let place = self.place(offset, bytes.len());
        // SAFETY: writable, as was just seen, and within the mapping, as `place` has seen; the bytes are no
        // part of it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    }

    fn place(&self, offset: usize, length: usize) -> *mut u8 {
        let end = offset.checked_add(length);
        assert!(end.is_some_and(|end| end <= self.length), "within the file");
        // SAFETY: within the mapping, as was just seen.
        unsafe { self.start.cast::<u8>().add(offset) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and there is no reference to it.
        let _ = unsafe { rustix::mm::munmap(self.start, self.length) };
    }
}

//! A file mapped into memory, read by copying only.
//!
//! # Safety
//!
//! A map of a file can change at any moment, so no reference to it is given out: bytes are copied out
//! within its length. The rows do not shrink the files that they map, and each process has a file of its own.

#![allow(unsafe_code)]

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::fs::File;
use std::io;

/// A file that is mapped, `MAP_SHARED`.
pub(super) struct Mapped {
    start: *mut std::ffi::c_void,
    length: usize,
}

impl Mapped {
    /// The whole of `file`, which is open for reading. It will be read in random order: the kernel would read
    /// much around each page that is touched.
    pub(super) fn new(file: &File) -> io::Result<Mapped> {
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let (null, shared) = (std::ptr::null_mut(), MapFlags::SHARED);
        // SAFETY: without a fixed address the kernel picks memory that nothing else uses.
        let start = unsafe { mmap(null, length, ProtFlags::READ, shared, file, 0) }?;
        let mapped = Mapped { start, length };
        // SAFETY: of the mapping; what is advised changes nothing that is read.
        unsafe { madvise(start, length, Advice::Random)? };
        Ok(mapped)
    }

    /// Fills `buffer` with what stands at `offset`.
    pub(super) fn copy_out(&self, offset: usize, buffer: &mut [u8]) {
        let end = offset.checked_add(buffer.len());
        assert!(end.is_some_and(|end| end <= self.length), "within the file");
        // SAFETY: within the mapping, as was just seen.
        let place = unsafe { self.start.cast::<u8>().add(offset) };
        // SAFETY: readable and within the mapping; the buffer is no part of it.
        unsafe { std::ptr::copy_nonoverlapping(place, buffer.as_mut_ptr(), buffer.len()) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and there is no reference to it.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

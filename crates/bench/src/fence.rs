//! A file in memory.
//!
//! # Safety
//!
//! A map of a file can change at any moment, so nobody is lent a reference to it: bytes are copied
//! out by volatile reads within its length. The rows do not shrink the files that they map.

#![allow(unsafe_code)]

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::fs::File;
use std::io;

/// A file that is mapped to be read in random order.
pub(crate) struct Mapped {
    start: *mut std::ffi::c_void,
    length: usize,
}

impl Mapped {
    pub(crate) fn new(file: &File) -> io::Result<Mapped> {
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let null = std::ptr::null_mut();
        // SAFETY: without a fixed address the kernel picks memory that nothing else uses.
        let start =
            unsafe { rustix::mm::mmap(null, length, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        let mapped = Mapped { start, length };
        // SAFETY: of the mapping; what is advised changes nothing that is read.
        unsafe { rustix::mm::madvise(start, length, Advice::Random)? };
        Ok(mapped)
    }

    /// The byte at `offset`.
    pub(crate) fn byte(&self, offset: usize) -> u8 {
        assert!(offset < self.length, "within the file");
        // SAFETY: within the mapping, as was just seen.
        let place = unsafe { self.start.cast::<u8>().add(offset) };
        // SAFETY: readable, and any byte is a u8.
        unsafe { place.read_volatile() }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's and nobody has a reference to it.
        let _ = unsafe { rustix::mm::munmap(self.start, self.length) };
    }
}

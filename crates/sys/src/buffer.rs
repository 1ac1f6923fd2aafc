//! Large buffers that get memory only where they are touched.
//!
//! # Safety
//! A [`PageBuffer`] owns its mapping from `mmap` to `munmap` and no other code has its address, so slices
//! of it follow the borrow of the buffer. Anonymous memory is zero at first, hence always initialised, and
//! private, hence changed by no other process.

#![allow(unsafe_code)]

use rustix::io::{Errno, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

/// Page-aligned memory of its own mapping, zero at first.
///
/// Sized for the largest request, it uses what the largest request so far needed. Transparent huge pages
/// are off, or the first byte would use 2 MiB.
pub struct PageBuffer {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the value, wherever that is; there is no thread-bound state.
unsafe impl Send for PageBuffer {}
// SAFETY: shared references only read.
unsafe impl Sync for PageBuffer {}

impl PageBuffer {
    /// A buffer of `length` bytes (the mapping is rounded up to whole pages).
    ///
    /// # Errors
    /// EINVAL for zero and for more than `isize::MAX`, ENOMEM.
    pub fn new(length: usize) -> Result<Self> {
        if length == 0 || isize::try_from(length).is_err() {
            return Err(Errno::INVAL);
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                length,
                protection,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        let mut buffer = Self { start, length };
        // Fails on a kernel without huge pages.
        let _ = buffer.advise(0..length, Advice::LinuxNoHugepage);
        Ok(buffer)
    }

    /// Allocates all pages, writable (`MADV_POPULATE_WRITE`, Linux 5.14).
    ///
    /// # Errors
    /// ENOMEM; EINVAL on an older kernel.
    pub fn populate(&mut self) -> Result<()> {
        self.advise(0..self.length, Advice::LinuxPopulateWrite)
    }

    /// Returns the pages that lie wholly within `range` (bytes) to the kernel; they read as zero afterwards.
    /// A range that ends with the buffer includes its last page.
    ///
    /// # Errors
    /// EINVAL for a range that is not within the buffer.
    pub fn release(&mut self, range: Range<usize>) -> Result<()> {
        if range.start > range.end || range.end > self.length {
            return Err(Errno::INVAL);
        }
        let page = rustix::param::page_size();
        let first = range.start.next_multiple_of(page);
        let end = if range.end == self.length {
            range.end
        } else {
            range.end / page * page
        };
        if first >= end {
            return Ok(());
        }
        self.advise(first..end, Advice::LinuxDontNeed)
    }

    /// `range` must start on a page and be within the buffer.
    fn advise(&mut self, range: Range<usize>, advice: Advice) -> Result<()> {
        let start: *mut c_void = self[range.clone()].as_mut_ptr().cast();
        // SAFETY: the pages are all of this buffer's mapping, and borrowed for writing: no slice of them
        // exists while they turn to zero.
        unsafe { rustix::mm::madvise(start, range.len(), advice) }
    }
}

impl Deref for PageBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `length` initialised bytes of the mapping that `self` owns, borrowed with it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for PageBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the exclusive borrow of `self` is that of the bytes.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for PageBuffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is this buffer's, and no slice of it outlives it. Unmapping what was
        // mapped does not fail.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl fmt::Debug for PageBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PageBuffer({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of the buffer that have memory.
    fn resident(buffer: &PageBuffer) -> Vec<usize> {
        let pages = buffer.len().div_ceil(rustix::param::page_size());
        let mut states = vec![0_u8; pages];
        let start = buffer.as_ptr().cast_mut().cast();
        // SAFETY: one byte is written per page of the mapping, and `states` has as many.
        let answer = unsafe { libc::mincore(start, buffer.len(), states.as_mut_ptr()) };
        assert_eq!(answer, 0);
        (0..pages).filter(|&page| states[page] & 1 == 1).collect()
    }

    #[test]
    fn memory_is_allocated_when_touched_and_freed_when_released() {
        let page = rustix::param::page_size();
        // More than a huge page, so that one would be used if it were allowed.
        let mut buffer = PageBuffer::new(4 << 20).unwrap();
        assert_eq!(resident(&buffer), []);
        buffer[5 * page] = 1;
        buffer[7 * page..9 * page].fill(2);
        assert_eq!(resident(&buffer), [5, 7, 8]);
        // Pages that are only partly within the range are unchanged.
        buffer.release(5 * page + 1..8 * page + page / 2).unwrap();
        assert_eq!(resident(&buffer), [5, 8]);
        let left = (buffer[5 * page], buffer[7 * page], buffer[8 * page]);
        assert_eq!(left, (1, 0, 2));
        buffer.release(6 * page..6 * page).unwrap();
        let all = 0..buffer.len();
        buffer.release(all).unwrap();
        assert!(resident(&buffer).is_empty());
        assert!(buffer.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn lengths_are_rounded_up_to_pages() {
        let page = rustix::param::page_size();
        let mut buffer = PageBuffer::new(page + 10).unwrap();
        assert_eq!(buffer.len(), page + 10);
        assert_eq!(buffer.as_ptr().addr() % page, 0);
        buffer.fill(9);
        buffer.release(0..page + 9).unwrap();
        assert_eq!((buffer[0], buffer[page + 9]), (0, 9));
        buffer.release(page..page + 10).unwrap();
        assert_eq!(buffer[page + 9], 0);
        assert_eq!(buffer.release(0..page + 11), Err(Errno::INVAL));
        #[allow(clippy::reversed_empty_ranges)]
        let reversed = 5..4;
        assert_eq!(buffer.release(reversed), Err(Errno::INVAL));
    }

    #[test]
    fn impossible_lengths_are_refused() {
        assert_eq!(PageBuffer::new(0).err(), Some(Errno::INVAL));
        assert_eq!(PageBuffer::new(usize::MAX).err(), Some(Errno::INVAL));
        let huge = PageBuffer::new(isize::MAX.cast_unsigned()).err();
        assert_eq!(huge, Some(Errno::NOMEM));
    }

    /// Together they are more than the address space of a process (128 TiB on most machines).
    #[test]
    fn unmapped_on_drop() {
        const TERABYTE: usize = 1 << 40;
        if let Err(error) = PageBuffer::new(TERABYTE) {
            return crate::test_ground::skipped(&format!("no terabyte of addresses: {error}"));
        }
        for _ in 0..300 {
            assert!(PageBuffer::new(TERABYTE).is_ok());
        }
    }
}

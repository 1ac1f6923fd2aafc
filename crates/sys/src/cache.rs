//! The part of a file that is in the page cache (`cachestat(2)`, Linux 6.5).
//!
//! # Safety
//! The kernel reads one structure and writes another, both on the stack and of the sizes that
//! `linux/mman.h` gives them.

#![allow(unsafe_code)]

use crate::raw::check;
use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The same number on all supported architectures.
const SYS_CACHESTAT: libc::c_long = 451;
const PAGE_BYTES: u64 = 4096;

static MISSING: AtomicBool = AtomicBool::new(false);

#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// `struct cachestat`: numbers of pages.
#[repr(C)]
#[derive(Default)]
struct Stat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether every page of `length` bytes at `offset` is cached. Pages that are being read count.
///
/// # Errors
/// ENOSYS before Linux 6.5, EPERM for files that the caller neither owns nor may write, EOPNOTSUPP
/// for hugetlbfs.
pub fn is_cached(file: impl AsFd, offset: u64, length: u64) -> Result<bool> {
    if MISSING.load(Ordering::Relaxed) {
        return Err(Errno::NOSYS);
    }
    let range = Range { offset, length };
    let mut stat = Stat::default();
    // SAFETY: both structures live across the call and are what the kernel takes them for.
    let answer = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_fd().as_raw_fd(),
            &raw const range,
            &raw mut stat,
            0,
        )
    };
    if let Err(errno) = check(answer) {
        if errno == Errno::NOSYS {
            MISSING.store(true, Ordering::Relaxed);
        }
        return Err(errno);
    }
    let end = offset.saturating_add(length);
    let pages = end.div_ceil(PAGE_BYTES) - offset / PAGE_BYTES;
    Ok(stat.cached >= pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ground::{directory, skipped};
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_was_written_is_cached_and_a_hole_is_not() {
        let place = directory();
        let file = std::fs::File::create(place.path().join("file")).unwrap();
        file.write_all_at(&[1; 3 * 4096], 0).unwrap();
        file.set_len(64 * 4096).unwrap();
        let cached = match is_cached(&file, 0, 3 * 4096) {
            Err(Errno::NOSYS) => return skipped("no cachestat in this kernel"),
            cached => cached,
        };
        assert_eq!(cached, Ok(true));
        assert_eq!(is_cached(&file, 4000, 100), Ok(true));
        assert_eq!(is_cached(&file, 4096, 2 * 4096 + 1), Ok(false));
        assert_eq!(is_cached(&file, 32 * 4096, 1), Ok(false));
    }
}

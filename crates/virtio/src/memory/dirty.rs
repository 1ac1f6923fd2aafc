//! The dirty log of guest memory, for live migration.
//!
//! The log is shared memory with a bit for each page of guest addresses, from zero on. A page is marked after
//! it was written, never before: the front end clears a bit and then copies the page, so an early bit would
//! lose the write. Bits are set atomically, as the front end and several queues access them at once.

use super::MemoryError;
use std::os::fd::AsFd;
use thrufs_sys::shared_memory::SharedMapping;

/// Bytes per bit (`VHOST_LOG_PAGE`).
pub const LOG_PAGE_BYTES: u64 = 4096;

/// A log of written pages.
#[derive(Debug)]
pub struct DirtyLog {
    bits: SharedMapping,
}

impl DirtyLog {
    /// Maps `length` bytes of `file` from `offset` on.
    ///
    /// # Errors
    ///
    /// When they cannot be mapped, or the file is shorter.
    pub fn map(file: impl AsFd, offset: u64, length: u64) -> Result<DirtyLog, MemoryError> {
        let length = usize::try_from(length)
            .map_err(|_| MemoryError::Log(rustix::io::Errno::INVAL.into()))?;
        let bits = SharedMapping::new(file.as_fd(), offset, length);
        let bits = bits.map_err(|errno| MemoryError::Log(errno.into()))?;
        Ok(DirtyLog { bits })
    }

    /// Whether it has a bit for every address before `end`.
    #[must_use]
    pub fn covers(&self, end: u64) -> bool {
        let bytes = end.div_ceil(LOG_PAGE_BYTES).div_ceil(8);
        bytes <= self.bits.len() as u64
    }

    /// Marks `length` bytes at the guest's `address` as written. Addresses beyond the log are ignored.
    pub fn mark(&self, address: u64, length: usize) {
        let Some(beyond) = (length as u64).checked_sub(1) else {
            return;
        };
        let first = address / LOG_PAGE_BYTES;
        let last = address.saturating_add(beyond) / LOG_PAGE_BYTES;
        for byte in first / 8..=last / 8 {
            let from = first.saturating_sub(byte * 8);
            let to = (last - byte * 8).min(7);
            let bits = (0xff_u8 << from) & (0xff_u8 >> (7 - to));
            let Ok(byte) = usize::try_from(byte) else {
                return;
            };
            if self.bits.set_bits(byte, bits).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::OwnedFd;

    const BYTES: u64 = 8;
    const PAGE: u64 = LOG_PAGE_BYTES;

    fn log() -> (OwnedFd, DirtyLog) {
        let file = memfd_create("log", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 64 + BYTES).unwrap();
        let log = DirtyLog::map(&file, 64, BYTES).unwrap();
        (file, log)
    }

    fn pages(file: &OwnedFd) -> Vec<u64> {
        let mut bytes = [0; 64 + BYTES as usize];
        rustix::io::pread(file, &mut bytes, 0).unwrap();
        assert!(bytes[..64].iter().all(|&byte| byte == 0));
        let bits = u64::from_le_bytes(bytes[64..].try_into().unwrap());
        (0..64).filter(|page| bits >> page & 1 != 0).collect()
    }

    #[test]
    fn a_range_marks_all_its_pages() {
        for first in 0..20 {
            for last in first..20 {
                for (from, to) in [(0, 1), (PAGE - 1, PAGE), (5, 6)] {
                    let (file, log) = log();
                    let start = first * PAGE + from;
                    let end = last * PAGE + to;
                    if start >= end {
                        continue;
                    }
                    log.mark(start, (end - start) as usize);
                    let expected: Vec<u64> = (first..=last).collect();
                    assert_eq!(pages(&file), expected, "{start}..{end}");
                }
            }
        }
    }

    #[test]
    fn empty_ranges_and_pages_beyond_the_log_are_not_marked() {
        let (file, log) = log();
        log.mark(PAGE, 0);
        log.mark(64 * PAGE, 1);
        log.mark(u64::MAX - 3, usize::MAX);
        assert_eq!(pages(&file), [0; 0]);
        log.mark(63 * PAGE, 5 * PAGE as usize);
        assert_eq!(pages(&file), [63], "the part within the log");
    }

    #[test]
    fn a_log_covers_eight_pages_a_byte() {
        let (file, log) = log();
        assert!(log.covers(0) && log.covers(64 * PAGE));
        assert!(!log.covers(64 * PAGE + 1) && !log.covers(u64::MAX));
        assert!(DirtyLog::map(&file, 64, BYTES + 1).is_err(), "too short");
        assert!(DirtyLog::map(&file, 0, 0).is_err());
        assert!(DirtyLog::map(&file, 8, u64::MAX).is_err());
    }
}

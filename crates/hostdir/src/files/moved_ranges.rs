//! Where the locks of owners are beneath while the [mount](super::mount_lock) has locked their file.

use thrufs::{Errno, Result};
use thrufs_sys::lock::{END_OF_FILE, LockKind, RangeLock};

/// Where the locks of owners above begin.
pub(super) const SHIFT: u64 = 1 << 62;

pub(super) fn of_mount(kind: LockKind) -> RangeLock {
    RangeLock {
        kind,
        start: 0,
        end: SHIFT - 1,
        pid: 0,
    }
}

/// The range beneath for one above. Fails with `EOVERFLOW` for one that is too far up.
pub(super) fn shifted(range: &RangeLock) -> Result<RangeLock> {
    if range.start >= SHIFT {
        return Err(Errno::EOVERFLOW);
    }
    Ok(RangeLock {
        start: range.start + SHIFT,
        end: range.end.saturating_add(SHIFT).min(END_OF_FILE),
        ..*range
    })
}

/// The inverse of [`shifted`]; locks of the host stay as they are.
pub(super) fn unshifted(range: &RangeLock) -> RangeLock {
    let Some(start) = range.start.checked_sub(SHIFT) else {
        return *range;
    };
    let end = match range.end {
        END_OF_FILE.. => END_OF_FILE,
        end => end - SHIFT,
    };
    RangeLock {
        start,
        end,
        ..*range
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_moved_and_back() {
        for (range, beneath) in [
            ((0, 0), (SHIFT, SHIFT)),
            ((128, 200), (SHIFT + 128, SHIFT + 200)),
            ((5, END_OF_FILE), (SHIFT + 5, END_OF_FILE)),
            ((5, u64::MAX), (SHIFT + 5, END_OF_FILE)),
            ((SHIFT - 1, SHIFT), (END_OF_FILE, END_OF_FILE)),
        ] {
            let of = |(start, end)| RangeLock {
                kind: LockKind::Read,
                start,
                end,
                pid: 7,
            };
            let moved = shifted(&of(range)).unwrap();
            assert_eq!(moved, of(beneath));
            let (start, end) = (range.0, range.1.min(END_OF_FILE));
            let end = if end >= SHIFT { END_OF_FILE } else { end };
            assert_eq!(unshifted(&moved), of((start, end)));
            assert_eq!(unshifted(&of((3, END_OF_FILE))), of((3, END_OF_FILE)));
        }
        let far = RangeLock {
            start: SHIFT,
            ..of_mount(LockKind::Read)
        };
        assert_eq!(shifted(&far), Err(Errno::EOVERFLOW));
    }
}

//! The clock of file systems' time stamps.
//!
//! rustix panics where the vDSO has fewer functions than it expects (User-Mode Linux) once it is asked for
//! the time.
//!
//! # Safety
//! The call fills one structure on the stack.

#![allow(unsafe_code)]

use std::time::Duration;

/// The time since 1970 as of the last tick, at most 10 ms ago: `CLOCK_REALTIME_COARSE` of
/// `clock_gettime(2)`. 0 before 1970.
pub fn coarse_time() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid and lives through the call, which cannot fail for a clock that is always
    // there.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

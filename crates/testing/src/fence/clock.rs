//! The clock that stamps files. `rustix` has it by the vDSO, and panics where that one lacks a function, as
//! in User-Mode Linux.
#![allow(unsafe_code)]

use std::time::Duration;

/// The time at the latest tick, since 1970.
pub fn at_latest_tick() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one `struct timespec`, which is ours.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut time) };
    assert_eq!(result, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

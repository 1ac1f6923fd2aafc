//! A descriptor that the process was started with, given by its number.
//!
//! # Safety
//! The number is borrowed for two calls of fcntl(2), which fail with EBADF where nothing is open. They copy
//! the descriptor and set its flag, which takes nothing from an owner in this process.

#![allow(unsafe_code)]

use rustix::io::{Errno, FdFlags, Result, fcntl_dupfd_cloexec, fcntl_setfd};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// Returns a copy of this descriptor, and sets its close-on-exec flag.
///
/// # Errors
/// EBADF when nothing is open there, EMFILE.
pub fn take(number: RawFd) -> Result<OwnedFd> {
    if number < 0 {
        return Err(Errno::BADF);
    }
    // SAFETY: not −1; borrowed for the two calls below, which check it (see the module).
    let inherited = unsafe { BorrowedFd::borrow_raw(number) };
    let own = fcntl_dupfd_cloexec(inherited, 3)?;
    fcntl_setfd(inherited, FdFlags::CLOEXEC)?;
    Ok(own)
}

//! Converts the result of a raw system call.

use rustix::io::{Errno, Result};

/// The calling thread's `errno`, right after a call.
#[cold]
pub(crate) fn last_errno() -> Errno {
    let code = std::io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(code.unwrap_or(libc::EIO))
}

/// Converts the result of `libc::syscall` (or of a libc wrapper, widened to `c_long`): −1 is the thread's
/// `errno`, anything else a count, an id or a descriptor.
pub(crate) fn check(answer: libc::c_long) -> Result<usize> {
    usize::try_from(answer).map_err(|_| last_errno())
}

/// As [`check`], for an `int`.
pub(crate) fn check_int(answer: libc::c_int) -> Result<i32> {
    if answer < 0 {
        Err(last_errno())
    } else {
        Ok(answer)
    }
}

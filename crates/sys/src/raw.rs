//! How a raw system call's answer becomes a `Result`.

use rustix::io::{Errno, Result};

/// The calling thread's `errno`, which is that of the call just made.
#[cold]
pub(crate) fn last_errno() -> Errno {
    let code = std::io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(code.unwrap_or(libc::EIO))
}

/// Turns the answer of `libc::syscall` (or a libc wrapper widened to `c_long`) into a result: −1
/// is the thread's `errno`, anything else a count, an id or a descriptor.
pub(crate) fn check(answer: libc::c_long) -> Result<usize> {
    usize::try_from(answer).map_err(|_| last_errno())
}

/// As [`check`], for answers that fit an `int`.
pub(crate) fn check_int(answer: libc::c_int) -> Result<i32> {
    if answer < 0 {
        Err(last_errno())
    } else {
        Ok(answer)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::fstat;
    use rustix::io::fcntl_getfd;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn an_inherited_descriptor_is_the_same_file_and_is_closed_on_exec() {
        let file = std::fs::File::open("/proc").unwrap();
        fcntl_setfd(&file, FdFlags::empty()).unwrap();
        let own = take(file.as_raw_fd()).unwrap();
        assert_eq!(fstat(&own).unwrap().st_dev, fstat(&file).unwrap().st_dev);
        assert_ne!(own.as_raw_fd(), file.as_raw_fd());
        for descriptor in [&own, &OwnedFd::from(file)] {
            assert_eq!(fcntl_getfd(descriptor), Ok(FdFlags::CLOEXEC));
        }
    }

    #[test]
    fn a_closed_number_is_ebadf() {
        assert_eq!(take(-1).unwrap_err(), Errno::BADF);
        assert_eq!(take(i32::MAX).unwrap_err(), Errno::BADF);
    }
}

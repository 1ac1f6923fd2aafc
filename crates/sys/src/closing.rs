//! Closing a descriptor and hearing what came of it.
//!
//! # Safety
//! The descriptor is given up by its owner before it is closed, so nobody else closes it.

#![allow(unsafe_code)]

use crate::raw::check_int;
use rustix::io::Result;
use std::os::fd::{IntoRawFd, OwnedFd};

/// Closes `descriptor` and reports the error of delayed writing that close(2) gives on some file
/// systems (NFS, SMB, FUSE). The descriptor is closed either way.
///
/// # Errors
/// EIO, ENOSPC, EDQUOT: what writing ran into after write(2) had returned.
pub fn close(descriptor: OwnedFd) -> Result<()> {
    let descriptor = descriptor.into_raw_fd();
    // SAFETY: into_raw_fd made this the only place that knows the open descriptor.
    check_int(unsafe { libc::close(descriptor) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_file_closes_without_complaint() {
        let file = std::fs::File::open("/").unwrap();
        assert_eq!(close(file.into()), Ok(()));
    }
}

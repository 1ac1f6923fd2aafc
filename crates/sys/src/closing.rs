//! Closing a descriptor and reporting the error.
//!
//! # Safety
//! The descriptor has no owner when it is closed, so it is closed once.

#![allow(unsafe_code)]

use crate::raw::check_int;
use rustix::io::Result;
use std::os::fd::{IntoRawFd, OwnedFd};

/// Closes `descriptor` and returns the error of delayed writes that close(2) reports on some file systems
/// (NFS, SMB, FUSE). The descriptor is closed either way.
///
/// # Errors
/// EIO, ENOSPC, EDQUOT: of writes for which write(2) had returned.
pub fn close(descriptor: OwnedFd) -> Result<()> {
    let descriptor = descriptor.into_raw_fd();
    // SAFETY: into_raw_fd left this as the only copy of the open descriptor.
    check_int(unsafe { libc::close(descriptor) }).map(drop)
}

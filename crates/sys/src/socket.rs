//! The peer of a socket.
//!
//! `rustix` has this call with a non-zero process id: when the peer has none in this process's namespace,
//! the kernel returns 0, which that type cannot hold.
//!
//! # Safety
//! The kernel fills in a structure of this module, of the given length.

#![allow(unsafe_code)]

use crate::raw::check;
use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, AsRawFd};

/// The user that connected the other end of a Unix socket, or listened there (`SO_PEERCRED`, unix(7)), as
/// an id of this process's user namespace.
///
/// # Errors
/// EINVAL should the kernel return another length.
pub fn peer_user(socket: impl AsFd) -> Result<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let whole = size_of::<libc::ucred>() as libc::socklen_t;
    let mut length = whole;
    // SAFETY: `peer` and `length` outlive the call, which writes no more than `length` says, the
    // size of `peer`; any numbers are a `ucred`.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    check(answer.into())?;
    if length == whole {
        Ok(peer.uid)
    } else {
        Err(Errno::INVAL)
    }
}

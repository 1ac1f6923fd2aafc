//! The peer of a socket, and the loopback interface.
//!
//! `rustix` has the first call with a non-zero process id: when the peer has none in this process's namespace,
//! the kernel returns 0, which that type cannot hold.
//!
//! # Safety
//! The kernel reads or fills in a structure of this module, of its length.

#![allow(unsafe_code)]

use crate::raw::check_int;
use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::{AsFd, AsRawFd};

/// The user that connected the other end of a Unix socket, or listened there (`SO_PEERCRED`, unix(7)), as
/// an id of this process's user namespace.
///
/// # Errors
/// EINVAL should the kernel return another length.
pub fn peer_user(socket: impl AsFd) -> Result<u32> {
    peer(socket).map(|(user, _)| user)
}

/// As [`peer_user`], with the process; 0 for one that this process does not see.
///
/// # Errors
/// As [`peer_user`].
pub fn peer(socket: impl AsFd) -> Result<(u32, i32)> {
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
    check_int(answer)?;
    if length == whole {
        Ok((peer.uid, peer.pid))
    } else {
        Err(Errno::INVAL)
    }
}

/// Brings up the interface `lo` of the network namespace, with its addresses 127.0.0.1 and ::1 (netdevice(7)).
///
/// # Errors
/// EPERM without CAP_NET_ADMIN in the user namespace that owns the network namespace.
pub fn set_loopback_up() -> Result<()> {
    // SAFETY: an `ifreq` has numbers, arrays of them and a pointer that this call does not use: zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(*b"lo") {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    let any = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: `request` outlives the call, which reads an `ifreq`.
    let answer = unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    check_int(answer).map(drop)
}

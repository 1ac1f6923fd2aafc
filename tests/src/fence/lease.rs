//! `fcntl(F_SETLEASE)`.
//!
//! # Safety
//!
//! Both commands take a number and no pointer; the descriptor is borrowed for the call. The signal is
//! ignored by the kernel: no handler runs.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Takes a write lease on an open file; `EAGAIN` while another descriptor has it open.
pub fn take_write_lease(file: impl AsFd) -> io::Result<()> {
    set(file, libc::F_WRLCK)
}

/// Gives a lease up; `EAGAIN` when there is none.
pub fn give_up_lease(file: impl AsFd) -> io::Result<()> {
    set(file, libc::F_UNLCK)
}

fn set(file: impl AsFd, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: no pointers, and the descriptor lives through the call.
    let outcome = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_SETLEASE, kind) };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Ignores SIGIO, by which the kernel asks the holder of a lease to give it up.
pub fn ignore_lease_signal() -> io::Result<()> {
    // SAFETY: SIG_IGN is no handler of ours.
    let before = unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    if before == libc::SIG_ERR {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

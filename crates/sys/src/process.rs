//! What a process does to its descriptors and its keyring before it executes another program, and that.
//!
//! # Safety
//! Only close-on-exec flags are changed. Closing a range is not offered: its descriptors may have owners in
//! this process. keyctl(2) is given numbers and a null pointer. execve(2) is given arrays of pointers to strings
//! that outlive the call.

#![allow(unsafe_code)]

use crate::raw::check;
use rustix::io::{Errno, Result};
use std::ffi::{CStr, CString};
use std::os::raw::c_char;

/// Sets close-on-exec on every descriptor from `first` to `last`, both included (`close_range(2)`, Linux
/// 5.11). `u32::MAX` as `last` means all.
///
/// # Errors
/// EINVAL when `first` is above `last`.
pub fn close_range_on_exec(first: u32, last: u32) -> Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC;
    // SAFETY: takes numbers; no descriptor is closed.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) }).map(drop)
}

/// Executes another program in this process (`execve(2)`), which ends all its threads. Unlike by
/// [`std::os::unix::process::CommandExt::exec`], blocked signals stay blocked, and pending. Returns only if it
/// fails.
pub fn execute(program: &CStr, arguments: &[CString], environment: &[CString]) -> Errno {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        let ended = std::iter::once(std::ptr::null());
        strings.iter().map(|it| it.as_ptr()).chain(ended).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: a string, and two arrays of pointers to strings, each ended by a null pointer. All outlive the call.
    let answer =
        unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    check(answer.into()).err().unwrap_or(Errno::INVAL)
}

/// Replaces the process's session keyring by a new, empty one (`keyctl(2)`, KEYCTL_JOIN_SESSION_KEYRING): keys
/// of the session of which it was started are no longer reachable by it.
///
/// # Errors
/// ENOSYS on a kernel without keyrings, EDQUOT at the user's limit of keys.
pub fn new_session_keyring() -> Result<()> {
    let unnamed = std::ptr::null::<libc::c_char>();
    // SAFETY: a null pointer asks for a keyring without a name.
    let answer =
        unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_JOIN_SESSION_KEYRING, unnamed) };
    check(answer).map(drop)
}

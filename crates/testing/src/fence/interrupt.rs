//! A signal that interrupts a blocking call and does nothing else.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::ptr;

extern "C" fn ignore(_signal: libc::c_int) {}

/// Lets SIGUSR1 end blocking calls of this process with EINTR (no `SA_RESTART`).
pub fn interrupt_on_usr1() -> io::Result<()> {
    // SAFETY: all zero bytes are a valid `sigaction`: an empty mask, no flags, no restorer.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = ignore as *const () as usize;
    // SAFETY: the action is initialised, its handler has the signature that goes without
    // `SA_SIGINFO` and calls nothing; the old action is not wanted.
    let result = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

//! `ioctl` with any command.
//!
//! # Safety
//!
//! A command says in 14 bits how many bytes the kernel reads and writes at the pointer (`_IOC_SIZE`), and
//! those of old that say nothing take a number or a few bytes. The argument is longer than all of them.
//! It has no pointers in it that are not null.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

/// What a command is sent with and answered by.
pub struct Argument([u64; 4096]);

impl Argument {
    pub fn new() -> Box<Argument> {
        Box::new(Argument([0; 4096]))
    }
}

/// Sends a command with an argument of zeroes to a regular file or directory.
pub fn send(file: impl AsFd, command: u32, argument: &mut Argument) -> Result<(), Errno> {
    argument.0.fill(0);
    let pointer = argument.0.as_mut_ptr();
    // SAFETY: see the module; the descriptor and the argument live through the call.
    let answer = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), command as libc::Ioctl, pointer) };
    if answer == -1 {
        let error = std::io::Error::last_os_error();
        Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    } else {
        Ok(())
    }
}

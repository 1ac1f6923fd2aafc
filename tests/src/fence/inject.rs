//! A system call made by a thread of another process: `ptrace(2)`, on x86-64 alone.
//!
//! # Safety
//!
//! Only the other process is changed, by the kernel, which checks every address. Afterwards it can only be
//! killed.
#![allow(unsafe_code)]

use std::io;

/// Far below what a thread has on its stack, red zone included.
const BELOW_STACK: u64 = 4096;

/// Makes a thread that sleeps in a system call execute `write(descriptor, bytes)` instead, and detaches.
/// `Unsupported` for a running thread, and on other architectures.
#[cfg(target_arch = "x86_64")]
pub fn write_by(thread: i32, descriptor: i32, bytes: &[u8]) -> io::Result<()> {
    const SYSCALL: u64 = 0x050f;
    let call = |request: libc::c_uint, address: u64, data: u64| -> io::Result<()> {
        // SAFETY: for these requests address and data are of the other process, or numbers.
        let answer = unsafe { libc::ptrace(request, thread, address, data) };
        (answer >= 0)
            .then_some(())
            .ok_or_else(io::Error::last_os_error)
    };
    call(libc::PTRACE_SEIZE, 0, 0)?;
    call(libc::PTRACE_INTERRUPT, 0, 0)?;
    // SAFETY: waits for that thread; no status is asked for.
    if unsafe { libc::waitpid(thread, std::ptr::null_mut(), libc::__WALL) } != thread {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all zero is a value of this structure of numbers.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let at = &raw mut registers;
    // SAFETY: the kernel fills the structure, which lives through the call.
    if unsafe { libc::ptrace(libc::PTRACE_GETREGS, thread, 0, at) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let instruction = registers.rip - 2;
    // SAFETY: reads a word of the other process; the C library gives it as the result.
    let word = unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, thread, instruction, 0) };
    if word.cast_unsigned() & 0xffff != SYSCALL {
        call(libc::PTRACE_DETACH, 0, 0)?;
        return Err(io::ErrorKind::Unsupported.into());
    }
    let place = (registers.rsp - BELOW_STACK) & !7;
    for (at, part) in bytes.chunks(8).enumerate() {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        let word = u64::from_ne_bytes(word);
        call(libc::PTRACE_POKEDATA, place + 8 * at as u64, word)?;
    }
    registers.rip = instruction;
    // So that the kernel does not restart the interrupted call.
    registers.orig_rax = u64::MAX;
    registers.rax = libc::SYS_write.cast_unsigned();
    registers.rdi = u64::from(descriptor.cast_unsigned());
    registers.rsi = place;
    registers.rdx = bytes.len() as u64;
    let at = &raw const registers;
    // SAFETY: the kernel reads the structure, which lives through the call.
    if unsafe { libc::ptrace(libc::PTRACE_SETREGS, thread, 0, at) } < 0 {
        return Err(io::Error::last_os_error());
    }
    call(libc::PTRACE_DETACH, 0, 0)
}

#[cfg(not(target_arch = "x86_64"))]
pub fn write_by(_thread: i32, _descriptor: i32, _bytes: &[u8]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

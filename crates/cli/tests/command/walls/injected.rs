//! Injects system calls into a worker: what an attacker in control of it can do, with its descriptors,
//! namespaces, capabilities and filter.
//!
//! # Safety
//!
//! ptrace(2) gets numbers, and structures of this process with their sizes. The memory of the other
//! process is written through /proc/PID/mem.
#![allow(unsafe_code)]

use crate::ground::prelude::*;
use std::io;
use std::mem::MaybeUninit;

/// A thread of another process, stopped in a system call.
pub struct Injected {
    process: i32,
    thread: i32,
    registers: libc::user_regs_struct,
    memory: File,
}

/// Distance below the stack for paths.
const BELOW: u64 = 16 << 10;

fn ptrace(request: libc::c_uint, thread: i32, data: *mut libc::c_void) {
    // SAFETY: no request here has an address; `data` is what the request wants, of this process's own.
    let answer = unsafe { libc::ptrace(request, thread, 0_usize, data) };
    let error = io::Error::last_os_error();
    assert_eq!(answer, 0, "ptrace {request:#x} of {thread}: {error}");
}

fn wait_for_stop(thread: i32) {
    let mut status = 0;
    // SAFETY: writes one int.
    let waited = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
    assert_eq!(waited, thread, "{}", io::Error::last_os_error());
    assert!(libc::WIFSTOPPED(status), "ended with {status:#x}");
}

impl Injected {
    pub fn into(process: Pid, name: &str) -> Injected {
        let process = process.as_raw_nonzero().get();
        let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let is_it = |path: &PathBuf| {
            fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
        };
        let mut found = tasks.map(|task| task.unwrap().path()).filter(is_it);
        let task = found.next().expect("a thread of this name");
        let thread = task.file_name().unwrap().to_str().unwrap().parse().unwrap();
        ptrace(libc::PTRACE_SEIZE, thread, std::ptr::null_mut());
        let memory = format!("/proc/{process}/mem");
        let memory = File::options().read(true).write(true).open(memory).unwrap();
        // It may be about to wait.
        let mut registers = None;
        wait_for("a wait in a system call", || {
            ptrace(libc::PTRACE_INTERRUPT, thread, std::ptr::null_mut());
            wait_for_stop(thread);
            let mut found = MaybeUninit::<libc::user_regs_struct>::uninit();
            ptrace(libc::PTRACE_GETREGS, thread, found.as_mut_ptr().cast());
            // SAFETY: the call has succeeded, and filled it.
            let found = unsafe { found.assume_init() };
            let mut instruction = [0; 2];
            let before = memory.read_exact_at(&mut instruction, found.rip - 2);
            before.unwrap();
            registers = (instruction == [0x0f, 0x05]).then_some(found);
            if registers.is_none() {
                ptrace(libc::PTRACE_CONT, thread, std::ptr::null_mut());
            }
            registers.is_some()
        });
        let registers = registers.unwrap();
        Injected {
            process,
            thread,
            registers,
            memory,
        }
    }

    /// Writes bytes to the thread's memory; returns the address. Overwritten by the next call.
    pub fn put(&self, bytes: &[u8]) -> u64 {
        let place = (self.registers.rsp - BELOW) & !15;
        self.memory.write_all_at(bytes, place).unwrap();
        place
    }

    /// Executes a system call; errors are negative.
    pub fn call(&self, number: libc::c_long, arguments: &[u64]) -> i64 {
        let argument = |at: usize| arguments.get(at).copied().unwrap_or(0);
        let mut registers = self.registers;
        registers.rax = number as u64;
        // Prevents a restart.
        registers.orig_rax = u64::MAX;
        registers.rip -= 2;
        registers.rdi = argument(0);
        registers.rsi = argument(1);
        registers.rdx = argument(2);
        registers.r10 = argument(3);
        registers.r8 = argument(4);
        registers.r9 = argument(5);
        self.set(&mut registers);
        ptrace(libc::PTRACE_SINGLESTEP, self.thread, std::ptr::null_mut());
        wait_for_stop(self.thread);
        let answer = (&raw mut registers).cast();
        ptrace(libc::PTRACE_GETREGS, self.thread, answer);
        assert_eq!(registers.rip, self.registers.rip, "one instruction further");
        registers.rax.cast_signed()
    }

    fn set(&self, registers: &mut libc::user_regs_struct) {
        let registers = std::ptr::from_mut(registers).cast();
        ptrace(libc::PTRACE_SETREGS, self.thread, registers);
    }

    pub fn openat(&self, directory: i32, path: &str, flags: i32) -> i64 {
        let path = self.put(&[path.as_bytes(), b"\0"].concat());
        let directory = i64::from(directory) as u64;
        self.call(libc::SYS_openat, &[directory, path, flags as u64, 0o600])
    }

    pub fn mknodat(&self, directory: i32, path: &str, kind: u32, device: u64) -> i64 {
        let path = self.put(&[path.as_bytes(), b"\0"].concat());
        let directory = i64::from(directory) as u64;
        let mode = u64::from(kind | 0o600);
        self.call(libc::SYS_mknodat, &[directory, path, mode, device])
    }

    pub fn close(&self, descriptor: i64) {
        assert_eq!(self.call(libc::SYS_close, &[descriptor as u64]), 0);
    }

    pub fn descriptors(&self) -> Vec<i32> {
        let entries = fs::read_dir(format!("/proc/{}/fd", self.process)).unwrap();
        let number = |entry: io::Result<fs::DirEntry>| {
            let name = entry.unwrap().file_name();
            name.to_str().unwrap().parse().unwrap()
        };
        entries.map(number).collect()
    }

    /// Whether a thread has CAP_DAC_READ_SEARCH.
    pub fn may_read_and_search(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process)).unwrap();
        tasks.flatten().any(|task| {
            let status = fs::read_to_string(task.path().join("status")).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
            u64::from_str_radix(line.unwrap().trim(), 16).unwrap() & 1 << 2 != 0
        })
    }

    /// The file of one of its descriptors.
    pub fn behind(&self, descriptor: i64) -> PathBuf {
        format!("/proc/{}/fd/{descriptor}", self.process).into()
    }
}

impl Drop for Injected {
    /// Continues at the original place.
    fn drop(&mut self) {
        let mut registers = self.registers;
        self.set(&mut registers);
        ptrace(libc::PTRACE_DETACH, self.thread, std::ptr::null_mut());
    }
}

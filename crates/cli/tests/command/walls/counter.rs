//! Counters of the kernel's tracepoints (`perf_event_open(2)`): exact numbers, without a buffer that
//! could overflow.
//!
//! # Safety
//!
//! The call takes one structure on the stack with its size, and answers with a descriptor that is owned
//! once. The `ioctl(2)`s take numbers or a string that ends in NUL, which the kernel copies. No memory is
//! shared with the kernel.

#![allow(unsafe_code)]

use rustix::io::{Errno, Result};
use rustix::process::Pid;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Counts how often a tracepoint is passed. Stopped at first; gone when it is dropped.
#[derive(Debug)]
pub(super) struct Counter {
    descriptor: OwnedFd,
}

/// `struct perf_event_attr` of `linux/perf_event.h`, its first version, which every kernel takes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;
/// The first two bits of the flags: does not count yet; also in those that the thread starts.
const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
/// `PERF_EVENT_IOC_ENABLE` and `_SET_FILTER`, for the latter of which the type of pointer
/// counts.
const ENABLE: libc::Ioctl = 0x2400;
const SET_FILTER: libc::Ioctl = 0x4008_2406;

impl Counter {
    /// A counter of the tracepoint with this number (`events/SYSTEM/NAME/id` of tracefs), in this thread and those
    /// that it starts while the counter is there. Needs what `ptrace(2)` needs, and CAP_PERFMON.
    ///
    /// # Errors
    /// EACCES or EPERM without the right to, ESRCH when there is no such thread, EMFILE,
    /// ENOENT or EINVAL for a number that is none.
    pub(super) fn of_tracepoint(number: u64, thread: Pid) -> Result<Counter> {
        let attributes = Attributes {
            kind: TRACEPOINT,
            size: size_of::<Attributes>() as u32,
            config: number,
            flags: DISABLED | INHERIT,
            ..Attributes::default()
        };
        // SAFETY: the kernel reads as many bytes of the structure as it says itself.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                thread.as_raw_nonzero().get(),
                -1,
                -1,
                CLOSE_ON_EXEC,
            )
        };
        let descriptor =
            check(answer).and_then(|found| i32::try_from(found).map_err(|_| Errno::OVERFLOW))?;
        // SAFETY: the kernel has just made it for us.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Counter { descriptor })
    }

    /// Counts only what the filter lets through, in the words of tracefs: `opcode == 3`. Once only.
    ///
    /// # Errors
    /// EEXIST when it has one, EINVAL for a filter that the tracepoint does not understand.
    pub(super) fn set_filter(&self, filter: &CStr) -> Result<()> {
        // SAFETY: the kernel copies the string up to its NUL.
        let answer =
            unsafe { libc::ioctl(self.descriptor.as_raw_fd(), SET_FILTER, filter.as_ptr()) };
        check(answer.into()).map(drop)
    }

    /// Begins to count, or goes on.
    ///
    /// # Errors
    /// None is known.
    pub(super) fn enable(&self) -> Result<()> {
        self.control(ENABLE)
    }

    fn control(&self, request: libc::Ioctl) -> Result<()> {
        // SAFETY: takes numbers.
        let answer = unsafe { libc::ioctl(self.descriptor.as_raw_fd(), request, 0) };
        check(answer.into()).map(drop)
    }

    /// What was counted until now, with what threads and processes that were started count.
    ///
    /// # Errors
    /// EIO when the kernel's answer has another length.
    pub(super) fn count(&self) -> Result<u64> {
        let mut value = [0; 8];
        if rustix::io::read(&self.descriptor, &mut value)? == value.len() {
            Ok(u64::from_ne_bytes(value))
        } else {
            Err(Errno::IO)
        }
    }
}

/// -1 is the thread's `errno`, anything else a descriptor or nothing in particular.
fn check(answer: libc::c_long) -> Result<libc::c_long> {
    if answer >= 0 {
        return Ok(answer);
    }
    let code = std::io::Error::last_os_error().raw_os_error();
    Err(Errno::from_raw_os_error(code.unwrap_or(libc::EIO)))
}

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

/// What is counted where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Whatever runs on this processor. Needs CAP_PERFMON, or a `perf_event_paranoid` of at most 0.
    Processor(u32),
    /// This thread, and the threads and processes that it starts while the counter is there. Needs what
    /// `ptrace(2)` needs; and CAP_PERFMON, or a `perf_event_paranoid` of at most -1, since events of the
    /// kernel are counted.
    Thread(Pid),
}

/// Counts how often a tracepoint is passed. Stopped at first; gone when it is dropped.
#[derive(Debug)]
pub struct Counter {
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
    /// A counter of the tracepoint with this number (`events/SYSTEM/NAME/id` of tracefs).
    ///
    /// # Errors
    /// EACCES or EPERM without the right to (see [`Scope`]), ESRCH when there is no such thread, EMFILE,
    /// ENOENT or EINVAL for a number that is none.
    pub fn of_tracepoint(number: u64, scope: Scope) -> Result<Counter> {
        let (thread, processor, inherit) = match scope {
            Scope::Processor(processor) => {
                let processor = i32::try_from(processor).map_err(|_| Errno::INVAL)?;
                (-1, processor, 0)
            }
            Scope::Thread(thread) => (thread.as_raw_nonzero().get(), -1, INHERIT),
        };
        let attributes = Attributes {
            kind: TRACEPOINT,
            size: size_of::<Attributes>() as u32,
            config: number,
            flags: DISABLED | inherit,
            ..Attributes::default()
        };
        // SAFETY: the kernel reads as many bytes of the structure as it says itself.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                thread,
                processor,
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
    pub fn set_filter(&self, filter: &CStr) -> Result<()> {
        // SAFETY: the kernel copies the string up to its NUL.
        let answer =
            unsafe { libc::ioctl(self.descriptor.as_raw_fd(), SET_FILTER, filter.as_ptr()) };
        check(answer.into()).map(drop)
    }

    /// Begins to count, or goes on.
    ///
    /// # Errors
    /// None is known.
    pub fn enable(&self) -> Result<()> {
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
    pub fn count(&self) -> Result<u64> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use thrufs_test_report::skipped;

    /// The number of `raw_syscalls:sys_enter`, where tracefs is mounted.
    fn system_calls() -> Option<u64> {
        let file = Path::new("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id");
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    fn myself() -> Scope {
        Scope::Thread(rustix::thread::gettid())
    }

    #[test]
    fn a_thread_and_those_that_it_starts_are_counted_exactly() {
        let Some(number) = system_calls() else {
            return skipped("tracefs is not there, or not for us");
        };
        let counter = match Counter::of_tracepoint(number, myself()) {
            Err(Errno::ACCESS | Errno::PERM) => return skipped("counting is not for us"),
            counter => counter.unwrap(),
        };
        // getppid(2), on this machine.
        let filter = format!("id == {}", libc::SYS_getppid);
        let filter = std::ffi::CString::new(filter).unwrap();
        counter.set_filter(&filter).unwrap();
        let ask = |times: usize| (0..times).for_each(|_| _ = rustix::process::getppid());
        ask(5);
        assert_eq!(counter.count(), Ok(0), "not enabled");
        counter.enable().unwrap();
        ask(1000);
        std::thread::scope(|scope| scope.spawn(|| ask(200)).join().unwrap());
        assert_eq!(counter.count(), Ok(1200));
        assert_eq!(counter.set_filter(&filter), Err(Errno::EXIST));
        let another = Counter::of_tracepoint(number, myself()).unwrap();
        assert_eq!(another.set_filter(c"nonsense == 1"), Err(Errno::INVAL));
    }

    #[test]
    fn a_wrong_tracepoint_or_processor_is_refused() {
        assert!(Counter::of_tracepoint(u64::MAX, myself()).is_err());
        assert!(Counter::of_tracepoint(1, Scope::Processor(u32::MAX)).is_err());
    }
}

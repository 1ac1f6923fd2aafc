//! Counters of the kernel's tracepoints (`perf_event_open(2)`): exact numbers, without a buffer that
//! could overflow.
//!
//! # Safety
//! The call takes one structure on the stack with its size, and answers with a descriptor that is owned
//! once. The `ioctl(2)`s take numbers or a string that ends in NUL, which the kernel copies. No memory is
//! shared with the kernel.

#![allow(unsafe_code)]

use crate::raw::{check, check_int};
use rustix::io::{Errno, Result};
use rustix::process::Pid;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All that runs on this processor. Needs CAP_PERFMON, or a `perf_event_paranoid` of at most 0.
    Processor(u32),
    /// This thread, and the threads and processes that it starts while the counter exists. Needs the
    /// permission of `ptrace(2)`; and CAP_PERFMON, or a `perf_event_paranoid` of at most -1, since kernel
    /// events are counted.
    Thread(Pid),
}

/// Counts the hits of a tracepoint. Disabled at first.
#[derive(Debug)]
pub struct TracepointCounter {
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
/// The first two bits of the flags: disabled at first; inherited by threads that the thread starts.
const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
/// `PERF_EVENT_IOC_ENABLE`, `_DISABLE` and `_SET_FILTER`, whose number includes the size of a pointer.
const ENABLE: libc::Ioctl = 0x2400;
const DISABLE: libc::Ioctl = 0x2401;
const SET_FILTER: libc::Ioctl = 0x4008_2406;

impl TracepointCounter {
    /// A counter of the tracepoint with this number (`events/SYSTEM/NAME/id` of tracefs).
    ///
    /// # Errors
    /// EACCES or EPERM without permission (see [`Scope`]), ESRCH without such a thread, EMFILE, ENOENT or
    /// EINVAL for a number that is none.
    pub fn of_tracepoint(number: u64, scope: Scope) -> Result<TracepointCounter> {
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
        // SAFETY: the kernel reads the structure's `size` bytes.
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
        let descriptor = i32::try_from(check(answer)?).map_err(|_| Errno::OVERFLOW)?;
        // SAFETY: the kernel has just made it for us.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(TracepointCounter { descriptor })
    }

    /// Counts only hits that match the filter, in tracefs syntax: `opcode == 3`. Once only.
    ///
    /// # Errors
    /// EEXIST when it has one, EINVAL for a filter that the tracepoint does not understand.
    pub fn set_filter(&self, filter: &CStr) -> Result<()> {
        // SAFETY: the kernel copies the string up to its NUL.
        let answer =
            unsafe { libc::ioctl(self.descriptor.as_raw_fd(), SET_FILTER, filter.as_ptr()) };
        check_int(answer).map(drop)
    }

    /// Starts or resumes counting.
    pub fn enable(&self) -> Result<()> {
        self.control(ENABLE)
    }

    /// Stops counting; the count is kept.
    pub fn disable(&self) -> Result<()> {
        self.control(DISABLE)
    }

    fn control(&self, request: libc::Ioctl) -> Result<()> {
        // SAFETY: takes numbers.
        let answer = unsafe { libc::ioctl(self.descriptor.as_raw_fd(), request, 0) };
        check_int(answer).map(drop)
    }

    /// The count so far, with those of inherited threads and processes.
    ///
    /// # Errors
    /// EIO when the kernel returns another length.
    pub fn count(&self) -> Result<u64> {
        let mut value = [0; 8];
        if rustix::io::read(&self.descriptor, &mut value)? == value.len() {
            Ok(u64::from_ne_bytes(value))
        } else {
            Err(Errno::IO)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_ground::skipped;
    use std::path::Path;

    /// The number of `raw_syscalls:sys_enter`, where tracefs is mounted.
    fn system_calls() -> Option<u64> {
        let file = Path::new("/sys/kernel/tracing/events/raw_syscalls/sys_enter/id");
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    fn myself() -> Scope {
        Scope::Thread(rustix::thread::gettid())
    }

    #[test]
    fn hits_of_a_thread_and_its_children_are_counted_exactly() {
        let Some(number) = system_calls() else {
            return skipped("tracefs is not there, or not for us");
        };
        let counter = match TracepointCounter::of_tracepoint(number, myself()) {
            Err(Errno::ACCESS | Errno::PERM) => return skipped("counting is not for us"),
            counter => counter.unwrap(),
        };
        // The number of getppid(2) on this machine.
        let filter = format!("id == {}", libc::SYS_getppid);
        let filter = std::ffi::CString::new(filter).unwrap();
        counter.set_filter(&filter).unwrap();
        let ask = |times: usize| (0..times).for_each(|_| _ = rustix::process::getppid());
        ask(5);
        assert_eq!(counter.count(), Ok(0), "not enabled");
        counter.enable().unwrap();
        ask(1000);
        std::thread::scope(|scope| scope.spawn(|| ask(200)).join().unwrap());
        counter.disable().unwrap();
        ask(5);
        assert_eq!(counter.count(), Ok(1200));
        assert_eq!(counter.set_filter(&filter), Err(Errno::EXIST));
        let another = TracepointCounter::of_tracepoint(number, myself()).unwrap();
        assert_eq!(another.set_filter(c"nonsense == 1"), Err(Errno::INVAL));
    }

    #[test]
    fn invalid_tracepoints_are_refused() {
        assert!(TracepointCounter::of_tracepoint(u64::MAX, myself()).is_err());
        assert!(TracepointCounter::of_tracepoint(1, Scope::Processor(u32::MAX)).is_err());
    }
}

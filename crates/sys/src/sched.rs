//! A thread's scheduling class and CPUs (`sched(7)`).
//!
//! # Safety
//! The calls take numbers and one structure on the stack; they change when a thread runs and nothing that it
//! sees.

#![allow(unsafe_code)]

use crate::raw::check;
use crate::signal::ThreadId;
use rustix::io::Result;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::mpsc;

/// The two classes of ordinary threads that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `SCHED_OTHER` with the shortest slice, 0.1 ms. When such a thread wakes up, it does not wait until a
    /// computing thread has used up its longer slice (Linux 6.12; older kernels ignore it). Its share of
    /// the CPU is the same.
    Prompt,
    /// `SCHED_IDLE`: runs when no other thread wants the CPU, and nearly never otherwise. The scheduler
    /// treats a CPU that runs only such threads as idle.
    Idle,
}

/// The shortest slice that the scheduler grants, in nanoseconds (`__setparam_fair` of the kernel).
const SLICE_NS: u64 = 100_000;

/// Nice value 0 in units of `RLIMIT_NICE` (`getrlimit(2)`).
const NICE_ZERO: u64 = 20;

/// The CPU on which this thread runs at the moment.
pub fn current_cpu() -> usize {
    // SAFETY: no arguments.
    let cpu = unsafe { libc::sched_getcpu() };
    // It fails only where the kernel lacks the call.
    usize::try_from(cpu).unwrap_or(0)
}

/// Changes the class of a thread of this process, or of one with the same owner.
///
/// # Errors
/// EPERM for leaving [`Class::Idle`] with neither CAP_SYS_NICE nor a limit that grants it (see
/// [`may_leave_idle`]), ESRCH when there is no such thread.
pub fn set_class(thread: ThreadId, class: Class) -> Result<()> {
    let mut attributes = attributes(thread)?;
    (attributes.sched_policy, attributes.sched_runtime) = match class {
        Class::Prompt => (libc::SCHED_OTHER as u32, SLICE_NS),
        Class::Idle => (libc::SCHED_IDLE as u32, 0),
    };
    // SAFETY: the kernel reads `size` bytes, which is the size that it wrote before.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            thread.as_raw(),
            &raw const attributes,
            0,
        )
    };
    check(answer).map(drop)
}

/// The scheduler's parameters of a thread: setting the class resets the nice value unless it is repeated.
fn attributes(thread: ThreadId) -> Result<libc::sched_attr> {
    let size = size_of::<libc::sched_attr>() as u32;
    let mut attributes = libc::sched_attr {
        size,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel writes at most `size` bytes.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            thread.as_raw(),
            &raw mut attributes,
            size,
            0,
        )
    };
    check(answer)?;
    // Other flags, such as that of clamped frequencies, need fields that are not here.
    attributes.sched_flags &= libc::SCHED_FLAG_RESET_ON_FORK as u64;
    Ok(attributes)
}

/// Whether threads of this process can return from [`Class::Idle`]: tried on a new thread, since one that
/// cannot would be lost. That thread sleeps meanwhile: on a busy machine it would not get to return by
/// itself.
pub fn may_leave_idle() -> bool {
    let (sender, receiver) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let thread = std::thread::Builder::new()
        .name("thrufs-probe".to_owned())
        .spawn(move || {
            let _ = sender.send(crate::signal::current_thread_id());
            let _ = released.recv();
        });
    let (Ok(thread), Ok(probe)) = (thread, receiver.recv()) else {
        return false;
    };
    let tried = set_class(probe, Class::Idle).and_then(|()| set_class(probe, Class::Prompt));
    drop(release);
    let _ = thread.join();
    tried.is_ok()
}

/// Returns all threads of a process from [`Class::Idle`] as far as possible, before it ends. Each of its
/// threads must run to end, and the last one releases what all had; on a busy machine, a thread that runs
/// when no other does would take seconds.
pub fn hurry(process: u32) {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else {
        return;
    };
    let numbers = threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse().ok());
    for thread in numbers.map(ThreadId::of) {
        let is_idle = attributes(thread)
            .is_ok_and(|attributes| attributes.sched_policy == libc::SCHED_IDLE as u32);
        if is_idle {
            // Without permission it takes its time.
            let _ = set_class(thread, Class::Prompt);
        }
    }
}

/// Raises `RLIMIT_NICE` so that threads can return from [`Class::Idle`] without a capability. For a process
/// that is about to drop its capabilities.
///
/// # Errors
/// EPERM without CAP_SYS_RESOURCE, unless the limit was high enough.
pub fn allow_leaving_idle() -> Result<()> {
    let limit = getrlimit(Resource::Nice);
    // An infinite limit reads as none.
    let raised = |now: Option<u64>| now.map(|now| now.max(NICE_ZERO));
    setrlimit(
        Resource::Nice,
        Rlimit {
            current: raised(limit.current),
            maximum: raised(limit.maximum),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::current_thread_id;
    use crate::test_ground::{in_a_thread, root, skipped};

    #[test]
    fn a_process_that_ends_leaves_the_idle_class() {
        let Some(()) = root() else { return };
        let _alone = crate::test_ground::FORKING.write().unwrap();
        let mut sleeping = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let thread = ThreadId::of(sleeping.id().try_into().unwrap());
        let class = || attributes(thread).unwrap().sched_policy;
        set_class(thread, Class::Idle).unwrap();
        assert_eq!(class(), libc::SCHED_IDLE as u32);
        hurry(sleeping.id());
        assert_eq!(class(), libc::SCHED_OTHER as u32);
        sleeping.kill().unwrap();
        sleeping.wait().unwrap();
        hurry(sleeping.id());
    }

    #[test]
    fn rlimit_nice_lets_threads_return_without_capabilities() {
        let Some(()) = root() else { return };
        in_a_thread(|| {
            if let Err(error) = allow_leaving_idle() {
                return skipped(&format!("the limit cannot be raised here: {error}"));
            }
            let limit = getrlimit(Resource::Nice).current;
            assert!(limit.is_none_or(|limit| limit >= NICE_ZERO));
            let nice = rustix::thread::CapabilitySet::SYS_NICE;
            crate::cred::drop_from_all_sets(nice).unwrap();
            let me = current_thread_id();
            set_class(me, Class::Idle).unwrap();
            set_class(me, Class::Prompt).unwrap();
        });
    }

    /// Field 41 of `/proc/self/task/TID/stat`.
    fn policy() -> i32 {
        let path = format!("/proc/self/task/{}/stat", current_thread_id().as_raw());
        let stat = std::fs::read_to_string(path).unwrap();
        let fields = stat.rsplit_once(')').unwrap().1;
        fields
            .split_whitespace()
            .nth(41 - 3)
            .unwrap()
            .parse()
            .unwrap()
    }

    #[test]
    fn prompt_threads_have_short_slices_and_their_nice_value() {
        in_a_thread(|| {
            let me = current_thread_id();
            let others = attributes(me).unwrap().sched_runtime;
            // The test process may have a nice value already.
            let nice = rustix::process::nice(3).unwrap();
            set_class(me, Class::Prompt).unwrap();
            let now = attributes(me).unwrap();
            assert_eq!((now.sched_nice, policy()), (nice, libc::SCHED_OTHER));
            if now.sched_runtime == others {
                return skipped("the scheduler has no slices for single threads");
            }
            assert_eq!(now.sched_runtime, SLICE_NS);
        });
    }
}

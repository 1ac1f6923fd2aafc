//! Where and with what right a thread runs: its scheduling class and its CPUs (`sched(7)`).
//!
//! # Safety
//!
//! The calls take numbers and one structure on the stack; they change when a thread runs and
//! nothing that it sees.

#![allow(unsafe_code)]

use crate::raw::check;
use crate::signal::ThreadId;
use rustix::io::Result;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The two classes of ordinary threads that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `SCHED_OTHER`.
    Normal,
    /// `SCHED_IDLE`: runs when nothing else wants the CPU, and nearly never otherwise. The scheduler
    /// counts a CPU with nothing but such threads as idle.
    Idle,
}

/// What nice value 0 is in the units of `RLIMIT_NICE` (`getrlimit(2)`).
const NICE_ZERO: u64 = 20;

/// Gives a thread of this process, or of one with the same owner, another class.
///
/// # Errors
/// EPERM for leaving [`Class::Idle`] with neither CAP_SYS_NICE nor a limit that grants it (see
/// [`may_leave_idle`]), ESRCH when there is no such thread.
pub fn set_class(thread: ThreadId, class: Class) -> Result<()> {
    let policy = match class {
        Class::Normal => libc::SCHED_OTHER,
        Class::Idle => libc::SCHED_IDLE,
    };
    // `struct sched_param` of the kernel: one number, zero for both classes.
    let priority: libc::c_int = 0;
    // musl's function of that name does nothing, so the system call it is.
    // SAFETY: the kernel reads one int.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            thread.as_raw(),
            policy,
            &raw const priority,
        )
    };
    check(answer).map(drop)
}

/// Whether threads of this process can come back from [`Class::Idle`]: tried on a thread made for
/// it, since one that cannot would be lost.
pub fn may_leave_idle() -> bool {
    let tried = std::thread::Builder::new()
        .name("thrufs-probe".to_owned())
        .spawn(|| {
            let me = crate::signal::current_thread_id();
            set_class(me, Class::Idle).and_then(|()| set_class(me, Class::Normal))
        });
    tried.is_ok_and(|thread| matches!(thread.join(), Ok(Ok(()))))
}

/// Raises the limit on the nice value so far that threads may come back from [`Class::Idle`] without
/// any capability (`RLIMIT_NICE`). For a process that still may, before it drops what lets it.
///
/// # Errors
/// EPERM without CAP_SYS_RESOURCE, unless the limit was high enough.
pub fn allow_leaving_idle() -> Result<()> {
    let limit = getrlimit(Resource::Nice);
    // No limit reads as none.
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
    use crate::test_ground::{in_a_thread, is_root, skipped};

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
    fn idle_and_back() {
        if !is_root() {
            return;
        }
        in_a_thread(|| {
            let me = current_thread_id();
            set_class(me, Class::Idle).unwrap();
            assert_eq!(policy(), libc::SCHED_IDLE);
            set_class(me, Class::Normal).unwrap();
            assert_eq!(policy(), libc::SCHED_OTHER);
        });
        assert!(may_leave_idle());
    }

    #[test]
    fn the_limit_lets_threads_without_capabilities_come_back() {
        if !is_root() {
            return;
        }
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
            set_class(me, Class::Normal).unwrap();
        });
    }
}

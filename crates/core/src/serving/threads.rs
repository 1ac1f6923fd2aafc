//! How serving threads begin and end.

use super::scheduling::release;
use crate::notify::mark_serving_thread;
use rustix::thread::CpuSet;
use std::fmt::Debug;
use std::sync::Arc;
use thrufs_sys::signal::{block, current_thread_id, interrupt_signal, unblock};

/// Notified when a serving thread panics: its requests would never be answered.
pub trait OnPanic: Debug + Send + Sync {
    /// Ends what the thread served.
    fn panicked(&self);
}

/// How serving threads begin. Clones are the same.
#[derive(Clone, Debug)]
pub struct ServingThreads {
    allowed: CpuSet,
    owner: Arc<dyn OnPanic>,
}

impl ServingThreads {
    /// Threads that may use the CPUs of `allowed` and report panics to `owner`.
    pub fn new(allowed: CpuSet, owner: Arc<dyn OnPanic>) -> ServingThreads {
        ServingThreads { allowed, owner }
    }

    /// Makes the calling thread, just started, a serving one until the guard is dropped: it blocks every
    /// signal but the one that ends a wait ([`install_interrupt_handler`] comes before), it may not wait for
    /// notifications, and it gets the ordinary class and all allowed CPUs, because a paired thread may have
    /// started it and threads inherit both.
    ///
    /// [`install_interrupt_handler`]: thrufs_sys::signal::install_interrupt_handler
    pub fn begin(&self) -> ServingThread<'_> {
        confine_signals();
        mark_serving_thread();
        release(current_thread_id(), &self.allowed);
        ServingThread(&*self.owner)
    }
}

/// Guard of a serving thread.
#[derive(Debug)]
pub struct ServingThread<'a>(&'a dyn OnPanic);

impl Drop for ServingThread<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.panicked();
        }
    }
}

/// Blocks every signal but the one that ends a wait: signals for the process belong to the program's
/// own threads.
pub(crate) fn confine_signals() {
    let ours = interrupt_signal();
    // A blocked fault would end the process without a message. 32 and 33 are the C library's.
    let faults = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
    ];
    let others: Vec<i32> = (1..=31)
        .chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
        .filter(|signal| *signal != ours && !faults.contains(signal))
        .filter(|signal| ![libc::SIGKILL, libc::SIGSTOP, libc::SIGABRT].contains(signal))
        .collect();
    let confined = block(&others).and_then(|()| unblock(&[ours]));
    if let Err(error) = confined {
        tracing::debug!(%error, "cannot set a thread's signal mask");
    }
}

#[cfg(test)]
mod tests {
    use super::super::scheduling::{allowed_cpus, bind};
    use super::*;
    use rustix::thread::sched_getaffinity;

    #[derive(Debug)]
    struct IgnorePanic;

    impl OnPanic for IgnorePanic {
        fn panicked(&self) {}
    }

    #[test]
    fn a_thread_started_by_a_paired_one_is_not_paired() {
        let allowed = allowed_cpus();
        let one = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu));
        if allowed.count() < 2 || !thrufs_sys::sched::may_leave_idle() {
            return thrufs_test_report::skipped("threads cannot be moved here");
        }
        let threads = ServingThreads::new(allowed, Arc::new(IgnorePanic));
        let bound = std::thread::spawn(move || {
            bind(current_thread_id(), one.unwrap()).unwrap();
            let child = std::thread::spawn(move || {
                let _serving = threads.begin();
                sched_getaffinity(None).unwrap()
            });
            child.join().unwrap()
        });
        assert_eq!(bound.join().unwrap(), allowed);
    }
}

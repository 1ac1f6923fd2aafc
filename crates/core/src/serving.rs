//! What serving threads share, for transports here and in other crates: their start, their CPUs, the
//! stall monitor, and the pool for requests that sleep.

mod blocking_pool;
mod live_count;
mod stall_monitor;

pub use crate::blocked_counts::BlockingLimits;
pub use crate::transport::pairing::{Pairing, Sample};
pub use crate::transport::scheduling::{
    allowed_cpus, bind, cpu_in_stat, move_to, release, times_in_schedstat,
};
pub use blocking_pool::{BlockingJob, BlockingPool};
pub use live_count::{LiveCount, LiveGuard};
pub use stall_monitor::{LOOK_INTERVAL, Monitor, MonitorWaker, start_monitor};

use crate::transport::begin_serving_thread;
use rustix::thread::CpuSet;
use std::fmt::Debug;
use std::sync::Arc;
use thrufs_sys::signal::current_thread_id;

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
        begin_serving_thread();
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

#[cfg(test)]
mod tests {
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

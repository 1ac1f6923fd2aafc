//! How a session is to be served.

use super::blocked_counts::BlockingLimits;
use crate::interrupt::LATE_MAX_DEFAULT;
use std::num::{NonZeroU16, NonZeroUsize};
use std::time::Duration;

/// The threads that read requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// Their number; by default one for each CPU that the process may use.
    pub readers: Option<NonZeroUsize>,
    /// While a single caller sends many small requests, let one reader serve it on the caller's CPU, so that
    /// neither wakes an idle one. Default: on. Needs procfs, several CPUs and, because that reader gives way
    /// to other threads and has to be brought back, CAP_SYS_NICE or an `RLIMIT_NICE` of 20
    /// ([`allow_leaving_idle`](thrufs_sys::sched::allow_leaving_idle)); has no effect without.
    pub pair: bool,
}

impl Default for Threads {
    fn default() -> Threads {
        Threads {
            readers: None,
            pair: true,
        }
    }
}

impl Threads {
    pub(crate) fn count(self) -> usize {
        let given = self
            .readers
            .or_else(|| std::thread::available_parallelism().ok());
        given.map_or(1, NonZeroUsize::get)
    }
}

/// How a session is served. Every bound has a counter in [`Snapshot`](crate::Snapshot).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// The threads that read requests from `/dev/fuse`.
    pub threads: Threads,
    /// The transport.
    pub transport: Transport,
    /// How requests over io_uring are served.
    pub ring: UringConfig,
    /// Most requests that may be blocked at once without occupying a reader. Beyond, readers block.
    pub blocked_max: usize,
    /// Most requests that may wait for a lock at once: half of them of one user, three quarters of all users
    /// but root. Beyond, they fail with `ENOLCK`.
    pub lock_waiters_max: usize,
    /// Most requests that may be [answered later](crate::Context::answer_later) at once; each costs a few
    /// hundred bytes, over io_uring some 12 KiB. Beyond, they wait like requests that sleep
    /// ([`blocked_max`](Self::blocked_max)), and fail with `EAGAIN` when as many as may be wait.
    pub late_max: usize,
    /// Most queued notifications.
    pub notifications_max: usize,
    /// How long the end waits for requests in progress.
    pub drain_timeout: Duration,
}

impl Default for SessionConfig {
    fn default() -> SessionConfig {
        SessionConfig {
            threads: Threads::default(),
            transport: Transport::default(),
            ring: UringConfig::default(),
            blocked_max: 64,
            lock_waiters_max: 128,
            late_max: LATE_MAX_DEFAULT,
            notifications_max: 8192,
            drain_timeout: Duration::from_secs(5),
        }
    }
}

impl SessionConfig {
    pub(crate) fn limits(&self) -> BlockingLimits {
        BlockingLimits {
            blocked_max: self.blocked_max,
            lock_waiters_max: self.lock_waiters_max,
        }
    }
}

/// The transport that a session is to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Transport {
    /// io_uring where it is available and not known to be slower, else `/dev/fuse`.
    #[default]
    Auto,
    /// io_uring where it is available (Linux 6.14), else `/dev/fuse`.
    Uring,
    /// `/dev/fuse`.
    Dev,
}

/// How requests over io_uring are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UringConfig {
    /// How many of the kernel's queues (one for each possible CPU) one thread serves. Default: one, and
    /// more where there are very many CPUs.
    pub queues_per_thread: Option<NonZeroUsize>,
    /// How many requests of one queue a thread holds at once; further ones wait in the kernel.
    /// Default: eight; one where requests may sleep unexpectedly
    /// ([`Negotiation::set_prompt`](crate::Negotiation::set_prompt)), because a sleeping thread delays
    /// the others that it holds.
    pub depth: Option<NonZeroU16>,
}

//! Ways in which requests come and replies go.
//!
//! A transport owns memory and threads. It knows nothing of what is in a request beyond what
//! [`Dispatcher`] tells it by an [`Outcome`](crate::Outcome). What a mount negotiates, INIT, and what
//! the kernel only ever sends or takes on `/dev/fuse` (FORGET, INTERRUPT, notifications) stay with
//! [`dev`], whichever transport carries the rest.

pub(crate) mod choice;
pub(crate) mod dev;
pub(crate) mod pairing;
pub(crate) mod scheduling;
pub(crate) mod uring;

use crate::dispatch::Dispatcher;
use crate::metrics::Metrics;
use crate::notify::mark_serving_thread;
use crate::serving::ServingThreads;
use crate::session::SessionConfig;
use crate::session::control::Control;
use crate::transport::scheduling::Processes;
use rustix::thread::CpuSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use thrufs_sys::signal::{block, interrupt_signal, unblock};

/// Requests and replies of so many bytes take longer to copy than threads to wake.
const LARGE_BYTES: usize = 32 << 10;

/// What a transport serves from and to: one mounted connection.
#[derive(Debug)]
pub(crate) struct Connection<F> {
    pub(crate) dispatcher: Dispatcher<F>,
    pub(crate) device: Arc<OwnedFd>,
    /// A view of this process's own threads and of callers, for those who look after them. Opened
    /// before the process gives up its view of the tree.
    pub(crate) processes: Option<Processes>,
    /// The CPUs that the session may use.
    pub(crate) allowed: CpuSet,
    pub(crate) threads: ServingThreads,
    pub(crate) config: SessionConfig,
    pub(crate) control: Arc<Control>,
}

impl<F> Connection<F> {
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        self.dispatcher.metrics()
    }

    pub(crate) fn processes(&self) -> Option<BorrowedFd<'_>> {
        self.processes.as_ref().map(AsFd::as_fd)
    }
}

/// Makes the calling thread one that serves: no signal reaches it but the one that ends a wait, and it may
/// not wait for notifications.
pub(crate) fn begin_serving_thread() {
    confine_signals();
    mark_serving_thread();
}

/// Leaves the calling thread with no signal but the one that ends a wait: signals for the process
/// are for the program's own threads.
pub(crate) fn confine_signals() {
    let ours = interrupt_signal();
    // Faults stay deliverable, or they would end the process without a word. 32 and 33 are the C
    // library's.
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
    let confined = block(&others).and_then(|_before| unblock(&[ours]));
    if let Err(error) = confined {
        tracing::debug!(%error, "cannot set a thread's signal mask");
    }
}

//! Transports: the ways in which requests arrive and replies leave.
//!
//! A transport owns memory and threads. It knows a request only by the [`Outcome`](crate::Outcome) that
//! [`Dispatcher`](crate::Dispatcher) returns. INIT, and what the kernel sends or takes on `/dev/fuse` only
//! (FORGET, INTERRUPT, notifications), stay with [`dev`], whichever transport carries the rest.

mod carrier;
mod connection;
pub(crate) mod dev;
pub(crate) mod uring;

use crate::dispatch::Dispatcher;
use crate::metrics::Metrics;
use crate::notify::mark_serving_thread;
use crate::serving::ServingThreads;
use crate::session::SessionConfig;
use crate::session::control::Control;
use crate::transport::scheduling::Processes;
use rustix::thread::CpuSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use thrufs_sys::signal::{block, interrupt_signal, unblock};

/// Copying a request or reply of this size takes longer than waking a thread.
const LARGE_BYTES: usize = 32 << 10;

/// One mounted connection, as its transports share it.
#[derive(Debug)]
pub(crate) struct Connection<F> {
    pub(crate) dispatcher: Dispatcher<F>,
    pub(crate) device: Arc<OwnedFd>,
    /// This process's threads and the callers in procfs. Opened before the process is confined.
    pub(crate) processes: Option<Processes>,
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
        self.processes.as_ref()?.view()
    }
}

/// Prepares the calling thread for serving: masks its signals, and forbids it to wait for notifications.
pub(crate) fn begin_serving_thread() {
    confine_signals();
    mark_serving_thread();
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
    let confined = block(&others).and_then(|_before| unblock(&[ours]));
    if let Err(error) = confined {
        tracing::debug!(%error, "cannot set a thread's signal mask");
    }
}

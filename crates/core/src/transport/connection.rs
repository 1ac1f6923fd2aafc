//! One connection to the kernel, as its transports share it.

use crate::dispatch::Dispatcher;
use crate::metrics::Metrics;
use crate::serving::journal::Writer;
use crate::serving::scheduling::Processes;
use crate::serving::{Control, ServingThreads, SessionConfig};
use rustix::thread::CpuSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Copying a request or reply of this size takes longer than waking a thread.
pub(crate) const LARGE_BYTES: usize = 32 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Connection<F> {
    pub(crate) dispatcher: Dispatcher<F>,
    pub(crate) device: Arc<OwnedFd>,
    /// This process's threads and the callers in procfs. Opened before the process is confined.
    pub(crate) processes: Processes,
    pub(crate) allowed: CpuSet,
    pub(crate) threads: ServingThreads,
    pub(crate) config: SessionConfig,
    pub(crate) control: Arc<Control>,
    /// Notes what another process needs to go on.
    pub(crate) writer: Option<Arc<Writer>>,
}

impl<F> Connection<F> {
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        self.dispatcher.metrics()
    }
}

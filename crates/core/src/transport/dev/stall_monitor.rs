//! Finds readers that are stuck, and puts in others.
//!
//! Most requests take microseconds, and whether one will sleep in a lower file system cannot be
//! known beforehand. If all readers sleep in such requests, nobody reads the next one. The monitor
//! looks at the pool every 2 ms while there is something to look at. When every reader has had the
//! same request for two looks, it takes the role of one and calls in another, until one is idle or
//! the bound for sleeping requests is reached. So a stall of all readers lasts 2 to 4 ms.
//!
//! A reader that is paired and at work is looked after as well ([`crate::transport::pairing`]).

use super::reader_pool::{ReaderPairing, ReaderPool};
use crate::file_system::FileSystem;
use crate::serving::{LiveGuard, MonitorWaker, StallMonitor, start_stall_monitor};
use std::io;
use std::sync::Arc;
use std::time::Instant;

pub(super) fn start<F: FileSystem>(pool: &Arc<ReaderPool<F>>) -> io::Result<()> {
    let monitor = ReaderMonitor {
        pool: Arc::clone(pool),
        pairing: ReaderPairing::new(pool),
        _count: pool.connection.control.thread(),
    };
    start_stall_monitor(&pool.alarm, monitor).map(drop)
}

struct ReaderMonitor<F> {
    pool: Arc<ReaderPool<F>>,
    pairing: ReaderPairing,
    /// Last: whoever sees no thread left may rely on that.
    _count: LiveGuard,
}

impl<F: FileSystem> StallMonitor for ReaderMonitor<F> {
    fn alarm(&self) -> &MonitorWaker {
        &self.pool.alarm
    }

    fn is_ending(&self) -> bool {
        self.pool.connection.control.is_stopping()
    }

    fn look(&mut self, now: Instant) -> bool {
        let paired = self.pairing.look(&self.pool, now);
        let suspicious = self.pool.check_readers();
        paired || suspicious
    }

    fn rest(&mut self) {
        self.pairing.rest(&self.pool);
    }

    fn is_needed(&self) -> bool {
        self.pool.is_busy()
    }
}

//! Replaces readers that are stuck.
//!
//! Most requests take microseconds, and nothing says beforehand which will sleep in a lower file system.
//! If all readers sleep, the next request is not read. The monitor looks at the pool every 2 ms while
//! there are requests. When every reader has had the same request for two looks, it takes the role of one
//! and calls another, until one is idle or the bound for blocked requests is reached. So a stall of all
//! readers lasts 2 to 4 ms.
//!
//! It also looks after a paired reader ([`crate::serving::Pairing`]).

use super::reader_pool::{ReaderPairing, ReaderPool};
use crate::file_system::FileSystem;
use crate::serving::{LiveGuard, Monitor, MonitorWaker, start_monitor};
use std::io;
use std::sync::Arc;
use std::time::Instant;

pub(super) fn start<F: FileSystem>(pool: &Arc<ReaderPool<F>>) -> io::Result<()> {
    let monitor = ReaderMonitor {
        pool: Arc::clone(pool),
        pairing: ReaderPairing::new(pool),
        _count: pool.connection.control.thread(),
    };
    start_monitor(&pool.monitor_waker, monitor).map(drop)
}

struct ReaderMonitor<F> {
    pool: Arc<ReaderPool<F>>,
    pairing: ReaderPairing,
    /// Last: a count of zero means that all has been dropped.
    _count: LiveGuard,
}

impl<F: FileSystem> Monitor for ReaderMonitor<F> {
    fn waker(&self) -> &MonitorWaker {
        &self.pool.monitor_waker
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

//! A count of live threads or values, and a wait until it is zero.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Instant;

/// See the module.
#[derive(Debug, Default)]
pub struct LiveCount {
    number: Mutex<usize>,
    fewer: Condvar,
}

/// Counts until it is dropped.
#[derive(Debug)]
pub struct LiveGuard(Arc<LiveCount>);

impl LiveCount {
    /// Counts one more.
    pub fn one_more(self: &Arc<Self>) -> LiveGuard {
        *self.number.lock() += 1;
        LiveGuard(Arc::clone(self))
    }

    /// Waits until none is left. Returns how many are left at `deadline`.
    pub fn wait_for_none(&self, deadline: Instant) -> usize {
        let mut number = self.number.lock();
        self.fewer
            .wait_while_until(&mut number, |number| *number > 0, deadline);
        *number
    }
}

impl Drop for LiveGuard {
    fn drop(&mut self) {
        *self.0.number.lock() -= 1;
        self.0.fewer.notify_all();
    }
}

//! How many there still are, for who waits for their end.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// See the module.
#[derive(Debug, Default)]
pub struct Count {
    number: Mutex<usize>,
    fewer: Condvar,
}

/// One of those that are counted, until this is dropped.
#[derive(Debug)]
pub struct Counted(Arc<Count>);

impl Count {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.number.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more.
    pub fn one_more(self: &Arc<Self>) -> Counted {
        *self.lock() += 1;
        Counted(Arc::clone(self))
    }

    /// Waits until none is left. Returns how many are at `deadline`.
    pub fn wait_for_none(&self, deadline: Instant) -> usize {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self
            .fewer
            .wait_timeout_while(self.lock(), left, |number| *number > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.fewer.notify_all();
    }
}

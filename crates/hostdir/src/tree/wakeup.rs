//! Wakes the housekeeping thread.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    pending: Mutex<bool>,
    changed: Condvar,
}

impl Wakeup {
    pub(crate) fn notify(&self) {
        let before = std::mem::replace(&mut *self.pending.lock(), true);
        if !before {
            self.changed.notify_one();
        }
    }

    /// Waits for a notification since the last wait, or for `timeout`.
    pub(super) fn wait(&self, timeout: Duration) {
        let mut pending = self.pending.lock();
        if !*pending {
            self.changed.wait_for(&mut pending, timeout);
        }
        *pending = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn wakeup_notifies_once() {
        let wakeup = Wakeup::default();
        wakeup.notify();
        wakeup.notify();
        let long = Duration::from_secs(60);
        let started = Instant::now();
        wakeup.wait(long);
        assert!(started.elapsed() < long);
        let short = Duration::from_millis(20);
        wakeup.wait(short);
        assert!(started.elapsed() >= short, "no second notification");
    }
}

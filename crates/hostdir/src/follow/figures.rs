//! Counts of what was followed.

use crate::statistics::Following;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts since the start.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) events: AtomicU64,
    pub(super) losses: AtomicU64,
    notifications: AtomicU64,
    pub(super) silenced: AtomicU64,
    /// Times that notifications have become late.
    pub(super) late: AtomicU64,
    /// From reading an event until the kernel above had been told, the longest, µs.
    lag_max: AtomicU64,
}

impl Figures {
    pub(super) fn told(&self, lag: Duration) {
        self.notifications.fetch_add(1, Ordering::Relaxed);
        self.lag(lag);
    }

    fn lag(&self, lag: Duration) {
        let lag = lag.as_micros().try_into().unwrap_or(u64::MAX);
        self.lag_max.fetch_max(lag, Ordering::Relaxed);
    }

    /// With the age of the oldest notification that the kernel above has not got.
    pub(super) fn following(&self, (marks, whole): (usize, bool), oldest: Duration) -> Following {
        self.lag(oldest);
        let count = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        Following {
            marks,
            whole,
            events: count(&self.events),
            notifications: count(&self.notifications),
            losses: count(&self.losses),
            silenced: count(&self.silenced),
            late: count(&self.late),
            lag_max_us: count(&self.lag_max),
        }
    }
}

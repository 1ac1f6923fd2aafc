//! Losses of events: the kernel above drops all that it has, and may keep nothing until that is done. While
//! notifications are late, it keeps what it gets for as long as without any.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What is kept while notifications are late.
pub(super) const LATE_TIMEOUT: Duration = Duration::from_secs(1);

/// Losses that began, and those that were repaired.
#[derive(Default)]
pub(super) struct Losses {
    begun: AtomicU64,
    repaired: AtomicU64,
    is_late: AtomicBool,
}

impl Losses {
    /// `followed`, or less while notifications are late, or nothing while a loss is being repaired.
    pub(super) fn timeout(&self, followed: Duration) -> Duration {
        if self.are_pending() {
            Duration::ZERO
        } else if self.are_late() {
            followed.min(LATE_TIMEOUT)
        } else {
            followed
        }
    }

    /// Whether the kernel above still has what may be outdated.
    pub(super) fn are_pending(&self) -> bool {
        let begun = self.begun.load(Ordering::SeqCst);
        self.repaired.load(Ordering::SeqCst) != begun
    }

    /// Returns whether notifications have become late.
    pub(super) fn set_late(&self, is_late: bool) -> bool {
        self.is_late.swap(is_late, Ordering::SeqCst) != is_late && is_late
    }

    pub(super) fn are_late(&self) -> bool {
        self.is_late.load(Ordering::SeqCst)
    }

    pub(super) fn lose(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// How many losses there were, for [`repaired`](Self::repaired).
    pub(super) fn count(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    pub(super) fn repaired(&self, losses: u64) {
        self.repaired.store(losses, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_kept_while_notifications_are_late() {
        let (losses, hour) = (Losses::default(), Duration::from_secs(3600));
        assert!(losses.set_late(true) && !losses.set_late(true));
        assert_eq!(losses.timeout(hour), LATE_TIMEOUT);
        assert_eq!(losses.timeout(Duration::ZERO), Duration::ZERO);
        assert!(!losses.set_late(false));
        assert_eq!(losses.timeout(hour), hour);
    }

    #[test]
    fn nothing_is_kept_until_the_last_loss_is_repaired() {
        let (losses, hour) = (Losses::default(), Duration::from_secs(3600));
        assert_eq!(losses.timeout(hour), hour);
        losses.lose();
        let first = losses.count();
        losses.lose();
        losses.repaired(first);
        assert_eq!(losses.timeout(hour), Duration::ZERO);
        losses.repaired(losses.count());
        assert_eq!(losses.timeout(hour), hour);
    }
}

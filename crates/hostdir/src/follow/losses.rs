//! Losses of events: the kernel above drops all that it has, and may keep nothing until that is done.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Losses that began, and those that were repaired.
#[derive(Default)]
pub(super) struct Losses {
    begun: AtomicU64,
    repaired: AtomicU64,
}

impl Losses {
    /// `followed`, or nothing while a loss is being repaired.
    pub(super) fn timeout(&self, followed: Duration) -> Duration {
        let begun = self.begun.load(Ordering::SeqCst);
        if self.repaired.load(Ordering::SeqCst) == begun {
            followed
        } else {
            Duration::ZERO
        }
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

//! Losses of events: the kernel above drops all that it has, and may keep nothing until that is done.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Losses that began, and those that were repaired.
#[derive(Default)]
pub(super) struct Trust {
    begun: AtomicU64,
    repaired: AtomicU64,
}

impl Trust {
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
    pub(super) fn losses(&self) -> u64 {
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
        let (trust, hour) = (Trust::default(), Duration::from_secs(3600));
        assert_eq!(trust.timeout(hour), hour);
        trust.lose();
        let first = trust.losses();
        trust.lose();
        trust.repaired(first);
        assert_eq!(trust.timeout(hour), Duration::ZERO);
        trust.repaired(trust.losses());
        assert_eq!(trust.timeout(hour), hour);
    }
}

//! Counts of the requests that are blocked in a pool, on a device or on a lock.
//!
//! A wait for a lock may last for ever, so one user gets half of the places only, and all users but root
//! together three quarters: a user with subordinate ids is as many users as it likes.

use crate::dispatch::Wait;
use crate::metrics::{Metrics, bump};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many requests may be blocked.
#[derive(Clone, Copy, Debug)]
pub struct BlockingLimits {
    /// On devices.
    pub blocked_max: usize,
    /// On locks.
    pub lock_waiters_max: usize,
}

#[derive(Debug, Default)]
pub(crate) struct BlockedCounts {
    blocked: usize,
    lock_waiters: usize,
    /// Those of `lock_waiters` that are not root's.
    of_users: usize,
    by_user: HashMap<u32, usize>,
    /// What was last reported to the metrics.
    reported: [usize; 3],
}

impl BlockedCounts {
    pub(crate) fn admits(&self, wait: Wait, limits: BlockingLimits) -> bool {
        let Wait::Lock { uid } = wait else {
            return self.blocked < limits.blocked_max;
        };
        let most = limits.lock_waiters_max;
        let of_this = self.by_user.get(&uid).copied().unwrap_or(0);
        let is_within_share = of_this < most - most / 2 && self.of_users < most - most / 4;
        self.lock_waiters < most && (uid == 0 || is_within_share)
    }

    pub(crate) fn enter(&mut self, wait: Wait) {
        let Wait::Lock { uid } = wait else {
            self.blocked += 1;
            return;
        };
        self.lock_waiters += 1;
        if uid != 0 {
            self.of_users += 1;
            *self.by_user.entry(uid).or_default() += 1;
        }
    }

    pub(crate) fn leave(&mut self, wait: Wait) {
        let Wait::Lock { uid } = wait else {
            self.blocked -= 1;
            return;
        };
        self.lock_waiters -= 1;
        if let Some(of_this) = self.by_user.get_mut(&uid) {
            self.of_users -= 1;
            *of_this -= 1;
            if *of_this == 0 {
                self.by_user.remove(&uid);
            }
        }
    }

    pub(crate) fn io_count(&self) -> usize {
        self.blocked
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocked + self.lock_waiters == 0
    }

    /// Adds the changes since the last report to the metrics, which are the sum of a session's pools: over
    /// io_uring it has two, the readers of its device and the blocking pool.
    pub(crate) fn report(&mut self, metrics: &Metrics, standby: usize) {
        let levels = &metrics.figures;
        let levels: [&AtomicU64; 3] = [&levels.blocked, &levels.lock_waiters, &levels.standby];
        let now = [self.blocked, self.lock_waiters, standby];
        for ((level, before), now) in levels.into_iter().zip(self.reported).zip(now) {
            level.fetch_add(now.wrapping_sub(before) as u64, Ordering::Relaxed);
        }
        self.reported = now;
    }
}

/// Counts a request for which no thread was available: it was refused, or is carried out where it is.
pub(crate) fn count_refused(metrics: &Metrics, wait: Wait) {
    bump(match wait {
        Wait::Lock { .. } => &metrics.figures.lock_waiters_refused,
        Wait::Late => &metrics.figures.late_refused,
        Wait::Io | Wait::Window => &metrics.figures.blocked_inline,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(uid: u32) -> Wait {
        Wait::Lock { uid }
    }

    fn limits(blocked_max: usize, lock_waiters_max: usize) -> BlockingLimits {
        BlockingLimits {
            blocked_max,
            lock_waiters_max,
        }
    }

    #[test]
    fn one_user_has_half_of_the_lock_waiters_and_all_but_root_three_quarters() {
        const MOST: usize = 8;
        let mut blocked = BlockedCounts::default();
        let mut enter = |uid| {
            let admitted = blocked.admits(lock(uid), limits(0, MOST));
            if admitted {
                blocked.enter(lock(uid));
            }
            admitted
        };
        assert_eq!([7; 5].map(&mut enter), [true, true, true, true, false]);
        assert_eq!([8; 3].map(&mut enter), [true, true, false]);
        assert!(!enter(9));
        assert_eq!([0; 3].map(&mut enter), [true, true, false]);
        blocked.leave(lock(7));
        let admits = |uid, most| blocked.admits(lock(uid), limits(0, most));
        assert!(!admits(8, 6) && admits(9, MOST) && admits(0, MOST));
        for uid in [7, 7, 7, 8, 8, 0, 0] {
            blocked.leave(lock(uid));
        }
        assert!(blocked.is_empty() && blocked.of_users == 0 && blocked.by_user.is_empty());
        assert!(blocked.admits(lock(7), limits(0, 1)), "one may always wait");
        assert!(!blocked.admits(Wait::Io, limits(0, 1)));
        blocked.enter(Wait::Io);
        assert!(blocked.admits(Wait::Io, limits(2, 0)) && !blocked.admits(Wait::Io, limits(1, 0)));
        assert!(!blocked.is_empty() && blocked.io_count() == 1);
    }

    #[test]
    fn metrics_sum_the_pools_of_a_session() {
        let metrics = Metrics::default();
        let (mut readers, mut rings) = (BlockedCounts::default(), BlockedCounts::default());
        let seen = || {
            let snapshot = metrics.snapshot();
            (snapshot.blocked, snapshot.lock_waiters, snapshot.standby)
        };
        readers.enter(Wait::Io);
        for uid in [7, 8, 9] {
            rings.enter(lock(uid));
        }
        rings.report(&metrics, 0);
        readers.report(&metrics, 2);
        assert_eq!(seen(), (1, 3, 2));
        rings.leave(lock(7));
        rings.report(&metrics, 5);
        assert_eq!(seen(), (1, 2, 7));
        readers.leave(Wait::Io);
        readers.report(&metrics, 0);
        assert_eq!(seen(), (0, 2, 5));
    }
}

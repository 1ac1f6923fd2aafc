//! Requests that wait for a lock.
//!
//! They may wait for ever, so one user must not have all places: it gets half of them, and all users but
//! root together three quarters, since a user with subordinate ids is as many users as it likes.

use std::collections::HashMap;

/// See the module.
#[derive(Debug, Default)]
pub struct LockWaiters {
    all: usize,
    of_users: usize,
    by_user: HashMap<u32, usize>,
}

impl LockWaiters {
    /// Whether there is room for one more of this user, where `most` may wait.
    pub fn admits(&self, uid: u32, most: usize) -> bool {
        let of_this = self.by_user.get(&uid).copied().unwrap_or(0);
        let is_within = of_this < most - most / 2 && self.of_users < most - most / 4;
        self.all < most && (uid == 0 || is_within)
    }

    /// Counts one more of this user.
    pub fn enter(&mut self, uid: u32) {
        self.all += 1;
        if uid != 0 {
            self.of_users += 1;
            *self.by_user.entry(uid).or_default() += 1;
        }
    }

    /// One of this user waits no more.
    pub fn leave(&mut self, uid: u32) {
        self.all = self.all.saturating_sub(1);
        if let Some(of_this) = self.by_user.get_mut(&uid) {
            self.of_users -= 1;
            *of_this -= 1;
            if *of_this == 0 {
                self.by_user.remove(&uid);
            }
        }
    }

    /// How many wait.
    pub fn count(&self) -> usize {
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_has_half_and_all_but_root_three_quarters() {
        const MOST: usize = 8;
        let mut waiters = LockWaiters::default();
        let mut enter = |uid| {
            let admitted = waiters.admits(uid, MOST);
            if admitted {
                waiters.enter(uid);
            }
            admitted
        };
        assert_eq!([7; 5].map(&mut enter), [true, true, true, true, false]);
        assert_eq!([8; 3].map(&mut enter), [true, true, false]);
        assert!(!enter(9));
        assert_eq!([0; 3].map(&mut enter), [true, true, false]);
        waiters.leave(7);
        assert!(!waiters.admits(8, 6) && waiters.admits(9, MOST) && waiters.admits(0, MOST));
        for uid in [7, 7, 7, 8, 8, 0, 0] {
            waiters.leave(uid);
        }
        assert!(waiters.count() == 0 && waiters.of_users == 0 && waiters.by_user.is_empty());
        assert!(waiters.admits(7, 1), "one may always wait");
    }
}

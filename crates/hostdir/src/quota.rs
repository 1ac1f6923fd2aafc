//! Quotas of one user of the clients, mostly of descriptors.
//!
//! An open directory may cost a descriptor of this process, and so do an open file that is not under
//! passthrough, a `flock(2)` on any other, and an owner of shared locks. So that one user cannot use up
//! RLIMIT_NOFILE, each user has a quota, and all together leave a rest: a user with subordinate ids can act
//! as many users. Root and the server's user are not limited.
//!
//! A removed inode without a file handle costs one as well, as long as the kernel knows it, because only
//! the descriptor leads to it. It is charged to the user who removed it, whichever process holds it. Root
//! has a quota of those: it removes what others hold.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use thrufs::{Errno, Result};

/// Users with equal ids modulo this share a lock.
const SHARDS: usize = 16;

pub(crate) struct UserQuotas {
    held: [Mutex<HashMap<u32, usize>>; SHARDS],
    held_total: AtomicUsize,
    user_max: usize,
    total_max: usize,
    /// Of root and of the server's user, outside of the total. `None`: they are not counted.
    root_max: Option<usize>,
    server_uid: u32,
    refused: AtomicU64,
}

/// One unit of a user's quota; given back when it is dropped.
pub(crate) struct QuotaCharge {
    quotas: Arc<UserQuotas>,
    uid: u32,
}

impl UserQuotas {
    /// At most `user_max`, at least 1, for each user, and `total_max`, at least `user_max`, for all.
    pub(crate) fn new(user_max: usize, total_max: usize, server_uid: u32) -> Arc<UserQuotas> {
        Arc::new(UserQuotas::of(user_max, total_max, server_uid))
    }

    /// As [`new`](Self::new), with `root_max` for each of root and the server's user.
    pub(crate) fn with_root_quota(
        user_max: usize,
        total_max: usize,
        root_max: usize,
        server_uid: u32,
    ) -> Arc<UserQuotas> {
        Arc::new(UserQuotas {
            root_max: Some(root_max),
            ..UserQuotas::of(user_max, total_max, server_uid)
        })
    }

    fn of(user_max: usize, total_max: usize, server_uid: u32) -> UserQuotas {
        let user_max = user_max.max(1);
        UserQuotas {
            held: Default::default(),
            held_total: AtomicUsize::new(0),
            user_max,
            total_max: total_max.max(user_max),
            root_max: None,
            server_uid,
            refused: AtomicU64::new(0),
        }
    }

    /// Charges one unit to a user. `None` where that is not counted. Fails with `ENFILE` when the quota of
    /// the user, or of all users, is used up.
    pub(crate) fn charge(self: &Arc<Self>, uid: Option<u32>) -> Result<Option<QuotaCharge>> {
        let Some(uid) = uid else {
            return Ok(None);
        };
        let max = match self.root_max {
            None if self.is_root(uid) => return Ok(None),
            Some(max) if self.is_root(uid) => max,
            _ => self.user_max,
        };
        if self.count(uid, max, self.total_max) {
            return Ok(Some(self.charged(uid)));
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(Errno::ENFILE)
    }

    /// Charges what another process had granted before.
    pub(crate) fn charge_resumed(self: &Arc<Self>, uid: u32) -> Option<QuotaCharge> {
        let is_counted = !self.is_root(uid) && self.count(uid, usize::MAX, usize::MAX);
        is_counted.then(|| self.charged(uid))
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn is_root(&self, uid: u32) -> bool {
        uid == 0 || uid == self.server_uid
    }

    fn charged(self: &Arc<Self>, uid: u32) -> QuotaCharge {
        let quotas = Arc::clone(self);
        QuotaCharge { quotas, uid }
    }

    fn shard(&self, uid: u32) -> &Mutex<HashMap<u32, usize>> {
        &self.held[uid as usize % SHARDS]
    }

    fn count(&self, uid: u32, max: usize, total_max: usize) -> bool {
        let mut users = self.shard(uid).lock();
        let held = users.get(&uid).copied().unwrap_or(0);
        if held >= max || !self.is_root(uid) && !self.count_total(total_max) {
            return false;
        }
        users.insert(uid, held + 1);
        true
    }

    fn count_total(&self, max: usize) -> bool {
        let one_more = |held: usize| (held < max).then_some(held + 1);
        let order = Ordering::Relaxed;
        self.held_total.fetch_update(order, order, one_more).is_ok()
    }
}

impl QuotaCharge {
    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }
}

impl Drop for QuotaCharge {
    fn drop(&mut self) {
        let mut users = self.quotas.shard(self.uid).lock();
        if let Some(held) = users.get_mut(&self.uid) {
            *held -= 1;
            if *held == 0 {
                users.remove(&self.uid);
            }
        }
        if !self.quotas.is_root(self.uid) {
            self.quotas.held_total.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_of_users_are_separate() {
        let quotas = UserQuotas::new(2, 100, 1000);
        let charge = |uid| quotas.charge(Some(uid));
        let first = charge(7).unwrap();
        let _second = charge(7).unwrap();
        assert_eq!(charge(7).err(), Some(Errno::ENFILE));
        // In the same shard.
        let others: Vec<_> = [23, 23].map(|uid| charge(uid).unwrap()).into();
        assert_eq!(charge(23).err(), Some(Errno::ENFILE));
        assert_eq!(quotas.refused(), 2);
        drop(first);
        let _third = charge(7).unwrap();
        assert!(charge(7).is_err());
        drop(others);
        assert!(quotas.shard(23).lock().get(&23).is_none());
        for uid in [0, 1000] {
            assert!(charge(uid).unwrap().is_none(), "{uid} is not counted");
        }
        assert!(quotas.charge(None).unwrap().is_none());
    }

    #[test]
    fn total_quota_leaves_some_for_root() {
        let quotas = UserQuotas::new(2, 3, 1000);
        let charge = |uid| quotas.charge(Some(uid));
        let mut held = Vec::from([1, 1, 2].map(|uid| charge(uid).unwrap()));
        assert_eq!(charge(3).err(), Some(Errno::ENFILE));
        assert!(quotas.shard(3).lock().get(&3).is_none());
        assert!(charge(0).is_ok());
        held.pop();
        assert!(charge(3).is_ok());
    }

    #[test]
    fn root_quota_is_separate() {
        let quotas = UserQuotas::with_root_quota(1, 1, 2, 1000);
        let charge = |uid| quotas.charge(Some(uid));
        let held = [0, 0, 1000, 1000, 7].map(|uid| charge(uid).unwrap());
        assert!(held.iter().all(Option::is_some));
        for uid in [0, 1000, 7] {
            assert_eq!(charge(uid).err(), Some(Errno::ENFILE), "{uid}");
        }
        drop(held);
        assert!(charge(7).is_ok() && charge(0).is_ok());
    }

    #[test]
    fn resumed_charges_count_and_are_not_refused() {
        let quotas = UserQuotas::new(1, 0, 0);
        let again: Vec<_> = (0..3).map(|_| quotas.charge_resumed(7)).collect();
        assert!(again.iter().all(Option::is_some));
        assert!(quotas.charge(Some(7)).is_err());
        drop(again);
        assert!(quotas.charge(Some(7)).is_ok());
    }
}

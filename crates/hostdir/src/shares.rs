//! How many descriptors one user of clients may hold.
//!
//! A directory that a client has open may cost a descriptor of this process, and so do an open file whose data
//! come through it, a `flock(2)` on any other, and an owner of shared locks. So that one user cannot use up all
//! that the process may open, each has a share of them, and all together leave some: a user with subordinate
//! ids is as many users as it likes. Root has no limit, nor has the user who serves.
//!
//! A removed inode without a file handle costs one as well, as long as the kernel knows it, because nothing but
//! the descriptor leads to it. It counts as the user's who removed it, whoever holds it. Root has a share of
//! those: it removes what others hold.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use thrufs::{Errno, Result};

/// Users whose number differs by less than this do not wait for each other.
const SHARDS: usize = 16;

pub(crate) struct Shares {
    held: [Mutex<HashMap<u32, usize>>; SHARDS],
    held_together: AtomicUsize,
    most: usize,
    most_together: usize,
    /// Of root and of who serves, apart from the others. None: they are not counted.
    most_of_root: Option<usize>,
    server_uid: u32,
    refused: AtomicU64,
}

/// One descriptor of a user's share; given back when it is dropped.
pub(crate) struct Share {
    shares: Arc<Shares>,
    uid: u32,
}

impl Shares {
    /// At most `most` for each user, at least 1, and `most_together` for all, no less than for one.
    pub(crate) fn new(most: usize, most_together: usize, server_uid: u32) -> Arc<Shares> {
        Arc::new(Shares::of(most, most_together, server_uid))
    }

    /// The same, with `most_of_root` for each of root and who serves.
    pub(crate) fn also_of_root(
        most: usize,
        most_together: usize,
        most_of_root: usize,
        server_uid: u32,
    ) -> Arc<Shares> {
        Arc::new(Shares {
            most_of_root: Some(most_of_root),
            ..Shares::of(most, most_together, server_uid)
        })
    }

    fn of(most: usize, most_together: usize, server_uid: u32) -> Shares {
        let most = most.max(1);
        Shares {
            held: Default::default(),
            held_together: AtomicUsize::new(0),
            most,
            most_together: most_together.max(most),
            most_of_root: None,
            server_uid,
            refused: AtomicU64::new(0),
        }
    }

    /// One more for a user. Nothing where that is not counted.
    ///
    /// # Errors
    ///
    /// `ENFILE` when the user holds its share, or all together hold theirs.
    pub(crate) fn take(self: &Arc<Self>, uid: Option<u32>) -> Result<Option<Share>> {
        let Some(uid) = uid else {
            return Ok(None);
        };
        let most = match self.most_of_root {
            None if self.is_root(uid) => return Ok(None),
            Some(most) if self.is_root(uid) => most,
            _ => self.most,
        };
        if self.counted(uid, most, self.most_together) {
            return Ok(Some(self.share(uid)));
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(Errno::ENFILE)
    }

    /// One more for what a user opened in the process before, which had granted it.
    pub(crate) fn take_again(self: &Arc<Self>, uid: u32) -> Option<Share> {
        let is_counted = !self.is_root(uid) && self.counted(uid, usize::MAX, usize::MAX);
        is_counted.then(|| self.share(uid))
    }

    /// How often a user was refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn is_root(&self, uid: u32) -> bool {
        uid == 0 || uid == self.server_uid
    }

    fn share(self: &Arc<Self>, uid: u32) -> Share {
        let shares = Arc::clone(self);
        Share { shares, uid }
    }

    fn shard(&self, uid: u32) -> &Mutex<HashMap<u32, usize>> {
        &self.held[uid as usize % SHARDS]
    }

    fn counted(&self, uid: u32, most: usize, most_together: usize) -> bool {
        let mut users = self.shard(uid).lock();
        let held = users.get(&uid).copied().unwrap_or(0);
        if held >= most || !self.is_root(uid) && !self.counted_together(most_together) {
            return false;
        }
        users.insert(uid, held + 1);
        true
    }

    fn counted_together(&self, most: usize) -> bool {
        let one_more = |held: usize| (held < most).then_some(held + 1);
        let order = Ordering::Relaxed;
        let counted = self.held_together.fetch_update(order, order, one_more);
        counted.is_ok()
    }
}

impl Share {
    pub(crate) fn uid(&self) -> u32 {
        self.uid
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut users = self.shares.shard(self.uid).lock();
        if let Some(held) = users.get_mut(&self.uid) {
            *held -= 1;
            if *held == 0 {
                users.remove(&self.uid);
            }
        }
        if !self.shares.is_root(self.uid) {
            self.shares.held_together.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_share_and_takes_nothing_of_others() {
        let shares = Shares::new(2, 100, 1000);
        let take = |uid| shares.take(Some(uid));
        let first = take(7).unwrap();
        let _second = take(7).unwrap();
        assert_eq!(take(7).err(), Some(Errno::ENFILE));
        // In the same shard.
        let others: Vec<_> = [23, 23].map(|uid| take(uid).unwrap()).into();
        assert_eq!(take(23).err(), Some(Errno::ENFILE));
        assert_eq!(shares.refused(), 2);
        drop(first);
        let _third = take(7).unwrap();
        assert!(take(7).is_err());
        drop(others);
        assert!(shares.shard(23).lock().get(&23).is_none());
        for uid in [0, 1000] {
            assert!(take(uid).unwrap().is_none(), "{uid} is not counted");
        }
        assert!(shares.take(None).unwrap().is_none());
    }

    #[test]
    fn all_users_together_leave_some_for_root() {
        let shares = Shares::new(2, 3, 1000);
        let take = |uid| shares.take(Some(uid));
        let mut held = Vec::from([1, 1, 2].map(|uid| take(uid).unwrap()));
        assert_eq!(take(3).err(), Some(Errno::ENFILE));
        assert!(shares.shard(3).lock().get(&3).is_none());
        assert!(take(0).is_ok());
        held.pop();
        assert!(take(3).is_ok());
    }

    #[test]
    fn root_has_a_share_of_its_own_where_it_has_one() {
        let shares = Shares::also_of_root(1, 1, 2, 1000);
        let take = |uid| shares.take(Some(uid));
        let held = [0, 0, 1000, 1000, 7].map(|uid| take(uid).unwrap());
        assert!(held.iter().all(Option::is_some));
        for uid in [0, 1000, 7] {
            assert_eq!(take(uid).err(), Some(Errno::ENFILE), "{uid}");
        }
        drop(held);
        assert!(take(7).is_ok() && take(0).is_ok());
    }

    #[test]
    fn what_was_granted_before_counts_and_is_not_refused() {
        let shares = Shares::new(1, 0, 0);
        let again: Vec<_> = (0..3).map(|_| shares.take_again(7)).collect();
        assert!(again.iter().all(Option::is_some));
        assert!(shares.take(Some(7)).is_err());
        drop(again);
        assert!(shares.take(Some(7)).is_ok());
    }
}

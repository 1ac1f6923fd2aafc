//! How many descriptors one user of clients may hold.
//!
//! A directory that a client has open may cost a descriptor of this process, and so do an open file whose data
//! come through it, a `flock(2)` on any other, and an owner of shared locks. So that one user cannot use up
//! all that the process may open, each has a share of them. Root has no limit, nor has the user who serves.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thrufs::{Errno, Result};

/// Users whose number differs by less than this do not wait for each other.
const SHARDS: usize = 16;

pub(crate) struct Shares {
    held: [Mutex<HashMap<u32, usize>>; SHARDS],
    most: usize,
    server_uid: u32,
    refused: AtomicU64,
}

/// One descriptor of a user's share; given back when it is dropped.
pub(crate) struct Share {
    shares: Arc<Shares>,
    uid: u32,
}

impl Shares {
    /// At most `most` for each user, at least 1.
    pub(crate) fn new(most: usize, server_uid: u32) -> Arc<Shares> {
        Arc::new(Shares {
            held: Default::default(),
            most: most.max(1),
            server_uid,
            refused: AtomicU64::new(0),
        })
    }

    /// One more for a user. Nothing where that is not counted.
    ///
    /// # Errors
    ///
    /// `ENFILE` when the user holds its share.
    pub(crate) fn take(self: &Arc<Self>, uid: Option<u32>) -> Result<Option<Share>> {
        let Some(uid) = uid.filter(|uid| self.counts(*uid)) else {
            return Ok(None);
        };
        if self.counted(uid, self.most) {
            return Ok(Some(self.share(uid)));
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(Errno::ENFILE)
    }

    /// One more for what a user opened in the process before, which had granted it.
    pub(crate) fn take_again(self: &Arc<Self>, uid: u32) -> Option<Share> {
        (self.counts(uid) && self.counted(uid, usize::MAX)).then(|| self.share(uid))
    }

    /// How often a user was refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn counts(&self, uid: u32) -> bool {
        uid != 0 && uid != self.server_uid
    }

    fn share(self: &Arc<Self>, uid: u32) -> Share {
        let shares = Arc::clone(self);
        Share { shares, uid }
    }

    fn shard(&self, uid: u32) -> &Mutex<HashMap<u32, usize>> {
        &self.held[uid as usize % SHARDS]
    }

    fn counted(&self, uid: u32, most: usize) -> bool {
        let mut users = self.shard(uid).lock();
        let held = users.entry(uid).or_default();
        let has_room = *held < most;
        *held += usize::from(has_room);
        has_room
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_share_and_takes_nothing_of_others() {
        let shares = Shares::new(2, 1000);
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
    fn what_was_granted_before_counts_and_is_not_refused() {
        let shares = Shares::new(1, 0);
        let again: Vec<_> = (0..3).map(|_| shares.take_again(7)).collect();
        assert!(again.iter().all(Option::is_some));
        assert!(shares.take(Some(7)).is_err());
        drop(again);
        assert!(shares.take(Some(7)).is_ok());
    }
}

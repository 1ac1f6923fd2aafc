//! A cache of the inodes' descriptors, under a budget.
//!
//! An inode is found again by its file handle or its place, so a descriptor only saves those two calls. The
//! CLOCK algorithm evicts: the hand goes round a ring of at most `budget` inodes, and closes the first
//! descriptor that was not used since its last visit. The ring holds weak references: a forgotten inode
//! closes its descriptor and leaves an empty slot.

use super::inode::Inode;
use parking_lot::Mutex;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

pub(crate) struct Descriptors {
    ring: Mutex<ClockRing>,
    budget: usize,
    evictions: AtomicU64,
}

struct ClockRing {
    entries: Vec<Weak<Inode>>,
    hand: usize,
}

impl Descriptors {
    pub(crate) fn new(budget: usize) -> Descriptors {
        Descriptors {
            ring: Mutex::new(ClockRing {
                entries: Vec::new(),
                hand: 0,
            }),
            budget,
            evictions: AtomicU64::new(0),
        }
    }

    /// Caches `fd` for the inode, evicting another descriptor when the budget is used up.
    pub(crate) fn keep(&self, inode: &Arc<Inode>, fd: OwnedFd) -> Arc<OwnedFd> {
        let (fd, ours) = inode.lower.keep_descriptor(fd);
        if ours {
            let evicted = self.enter(inode);
            inode.mount().idle_expiry.mark_used();
            // Closed outside the lock: close(2) may take long.
            drop(evicted);
        }
        fd
    }

    fn enter(&self, inode: &Arc<Inode>) -> Option<Arc<OwnedFd>> {
        let mut ring = self.ring.lock();
        if ring.entries.len() < self.budget {
            ring.entries.push(Arc::downgrade(inode));
            return None;
        }
        let evicted = ring.make_room();
        let hand = ring.hand;
        match evicted {
            Some(evicted) => {
                ring.entries[hand] = Arc::downgrade(inode);
                ring.step();
                evicted.inspect(|_| {
                    self.evictions.fetch_add(1, Ordering::Relaxed);
                })
            }
            // No inode can be found again without its descriptor: the ring grows up to RLIMIT_NOFILE.
            None => {
                ring.entries.push(Arc::downgrade(inode));
                None
            }
        }
    }

    /// Evicts up to `count` descriptors, when the process has run into RLIMIT_NOFILE.
    pub(crate) fn shrink(&self, count: usize) {
        let mut taken = Vec::new();
        let mut ring = self.ring.lock();
        for _ in 0..count {
            let Some(evicted) = ring.make_room() else {
                break;
            };
            let hand = ring.hand;
            ring.entries.swap_remove(hand);
            taken.extend(evicted);
            if ring.entries.is_empty() {
                break;
            }
        }
        drop(ring);
        self.evictions
            .fetch_add(taken.len() as u64, Ordering::Relaxed);
    }

    pub(crate) fn release_mount(&self, mount: u32) {
        let mut entries = Vec::new();
        self.ring.lock().entries.retain(|entry| {
            let Some(inode) = entry.upgrade() else {
                return false;
            };
            let is_of_mount = inode.identity().mount() == mount;
            if is_of_mount {
                entries.push(inode);
            }
            !is_of_mount
        });
        // System calls: outside the lock.
        for inode in entries {
            inode.lower.drop_descriptor();
            // An inode that cannot be found again keeps its descriptor, as does one opened meanwhile.
            if inode.lower.has_descriptor() {
                self.ring.lock().entries.push(Arc::downgrade(&inode));
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        let ring = self.ring.lock();
        let known = |inode: &&Weak<Inode>| inode.strong_count() > 0;
        // Forgotten inodes have closed theirs; their slots are reused.
        ring.entries.iter().filter(known).count()
    }

    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }
}

impl ClockRing {
    fn step(&mut self) {
        self.hand = (self.hand + 1) % self.entries.len().max(1);
    }

    /// Moves the hand to an empty slot, evicting a descriptor if need be. `None` when two rounds found
    /// none.
    fn make_room(&mut self) -> Option<Option<Arc<OwnedFd>>> {
        for _ in 0..self.entries.len() * 2 {
            if self.hand >= self.entries.len() {
                self.hand = 0;
            }
            match self.entries[self.hand].upgrade() {
                None => return Some(None),
                Some(inode) => {
                    if let Some(fd) = inode.lower.give_up_descriptor() {
                        return Some(Some(fd));
                    }
                    if !inode.lower.has_descriptor() {
                        return Some(None);
                    }
                }
            }
            self.step();
        }
        None
    }
}

//! The open directories that hold a descriptor or a buffer: so many at most.
//!
//! Whoever opens a directory, or lists one that holds nothing, goes to the end of a queue. When that is too
//! long, the first gives back what can be had again; one that is being listed goes to the end instead.
//! Directories that were closed leave their place empty until it is their turn.

use crate::directories::OpenDirectory;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// More save nothing worth the memory.
const MOST: usize = 1024;

/// How many are asked for each that comes.
const ASKED: usize = 4;

pub(crate) struct Listings {
    queue: Mutex<VecDeque<Weak<OpenDirectory>>>,
    most: usize,
}

impl Listings {
    /// Where there is a budget of so many descriptors for inodes.
    pub(crate) fn beside(budget: usize) -> Listings {
        Listings {
            queue: Mutex::default(),
            most: (budget / 4).clamp(16, MOST),
        }
    }

    /// To be called when it is about to hold something, and was not entered since it gave back what it held.
    pub(crate) fn enter(&self, directory: &Arc<OpenDirectory>) {
        // Closed after the lock.
        let mut taken = Vec::new();
        let mut queue = self.queue.lock();
        queue.push_back(Arc::downgrade(directory));
        for _ in 0..ASKED {
            if queue.len() <= self.most {
                break;
            }
            let first = queue.pop_front();
            let Some(first) = first.and_then(|first| first.upgrade()) else {
                continue;
            };
            match first.give_back() {
                Some(held) => taken.push((first, held)),
                None => queue.push_back(Arc::downgrade(&first)),
            }
        }
        drop(queue);
    }
}

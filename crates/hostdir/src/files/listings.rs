//! The open directories that hold a descriptor or a buffer: a bounded queue.
//!
//! A directory that is opened, or listed while it holds nothing, goes to the end of the queue. When the
//! queue is too long, the first one gives back what can be obtained again; one that is being listed goes to
//! the end instead. Closed directories leave their slot empty until it is their turn.

use super::open_directory::OpenDirectory;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// More is not worth the memory.
const MOST: usize = 1024;

/// How many are asked for each new one.
const ASKED: usize = 4;

pub(crate) struct Listings {
    queue: Mutex<VecDeque<Weak<OpenDirectory>>>,
    most: usize,
}

impl Listings {
    /// For a budget of this many inode descriptors.
    pub(crate) fn beside(budget: usize) -> Listings {
        Listings {
            queue: Mutex::default(),
            most: (budget / 4).clamp(16, MOST),
        }
    }

    /// To be called when a directory is about to hold something and is not in the queue.
    pub(crate) fn enter(&self, directory: &Arc<OpenDirectory>) {
        // Closed outside the lock.
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

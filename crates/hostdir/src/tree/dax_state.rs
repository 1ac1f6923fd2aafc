//! Whether a guest maps a file from the host's page cache. The guest decides when it makes its inode, by the reply to
//! the first lookup, and keeps to that until it forgets the file.

use std::sync::atomic::{AtomicU8, Ordering};

const NAMED: u8 = 1;
const DECIDED: u8 = 2;
const REPORTED: u8 = 4;

#[derive(Debug, Default)]
pub(crate) struct DaxState(AtomicU8);

impl DaxState {
    /// It has a name of those that are to be mapped.
    pub(crate) fn name(&self) {
        self.0.fetch_or(NAMED, Ordering::Relaxed);
    }

    pub(crate) fn is_named(&self) -> bool {
        self.0.load(Ordering::Relaxed) & NAMED != 0
    }

    /// The guest was told whether to map it.
    pub(crate) fn is_decided(&self) -> bool {
        self.0.load(Ordering::Relaxed) & DECIDED != 0
    }

    /// The guest was told to map it.
    pub(crate) fn report(&self) {
        self.0.fetch_or(DECIDED | REPORTED, Ordering::Relaxed);
    }

    /// The guest was not told to map it.
    pub(crate) fn decline(&self) {
        self.0.fetch_or(DECIDED, Ordering::Relaxed);
    }

    pub(crate) fn is_reported(&self) -> bool {
        self.0.load(Ordering::Relaxed) & REPORTED != 0
    }

    /// The guest has forgotten it.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

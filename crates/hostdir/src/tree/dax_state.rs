//! Whether a guest maps a file from the host's page cache.

use std::sync::atomic::{AtomicU8, Ordering};

const NAMED: u8 = 1;
const REPORTED: u8 = 2;

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

    /// The guest was told to map it, which it does until it forgets the file.
    pub(crate) fn report(&self) {
        self.0.fetch_or(REPORTED, Ordering::Relaxed);
    }

    pub(crate) fn is_reported(&self) -> bool {
        self.0.load(Ordering::Relaxed) & REPORTED != 0
    }
}

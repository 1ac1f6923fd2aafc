//! How changes of an inode are told, if they are: see [`follow`](crate::follow).

use std::sync::atomic::{AtomicU8, Ordering};

#[derive(Default)]
pub(crate) struct Followed(AtomicU8);

impl Followed {
    /// It has a mark of its own; of a directory, for its entries as well.
    pub(crate) const MARKED: u8 = 1;
    /// It has one name, which was found in a marked directory.
    pub(crate) const BY_ITS_NAME: u8 = 2;
    /// It could not be marked.
    pub(crate) const REFUSED: u8 = 4;

    pub(crate) fn any(&self, which: u8) -> bool {
        self.0.load(Ordering::SeqCst) & which != 0
    }

    pub(crate) fn set(&self, which: u8) {
        self.0.fetch_or(which, Ordering::SeqCst);
    }

    pub(crate) fn clear(&self, which: u8) {
        self.0.fetch_and(!which, Ordering::SeqCst);
    }
}

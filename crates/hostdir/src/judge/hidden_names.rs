//! The names that were answered with ENOENT because they are hidden.

use parking_lot::Mutex;
use std::collections::HashSet;
use thrufs_abi::NodeId;

/// Most hidden names that are recorded between two reloads.
pub(super) const HIDDEN_NAMES_MAX: usize = 1 << 16;

/// The names that were answered with ENOENT because they were hidden.
#[derive(Debug, Default)]
pub(super) struct HiddenNames(Mutex<Noted>);

#[derive(Debug, Default)]
pub(super) struct Noted {
    pub(super) names: HashSet<(NodeId, Box<[u8]>)>,
    /// There were more than [`HIDDEN_NAMES_MAX`].
    pub(super) is_full: bool,
}

impl HiddenNames {
    pub(super) fn note(&self, directory: NodeId, name: &[u8]) {
        let mut noted = self.0.lock();
        if noted.names.len() < HIDDEN_NAMES_MAX {
            noted.names.insert((directory, name.into()));
        } else if !noted.names.contains(&(directory, name.into())) {
            noted.is_full = true;
        }
    }

    #[cfg(test)]
    pub(super) fn is_full(&self) -> bool {
        self.0.lock().is_full
    }

    pub(super) fn take(&self) -> Noted {
        std::mem::take(&mut *self.0.lock())
    }
}

//! Which records of names are free.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Which records are free.
#[derive(Default)]
pub(super) struct NameSlots {
    pub(super) free: Mutex<Free>,
    pub(super) rank: AtomicU64,
    pub(super) are_used: AtomicBool,
}

#[derive(Default)]
pub(super) struct Free {
    pub(super) indices: Vec<u32>,
    pub(super) next: u32,
}

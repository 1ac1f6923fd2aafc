//! Which records of names are free.

use crate::slots::Free;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

#[derive(Default)]
pub(super) struct NameSlots {
    pub(super) free: Mutex<Free>,
    pub(super) rank: AtomicU64,
    pub(super) are_used: AtomicBool,
}

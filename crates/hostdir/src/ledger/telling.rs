//! One audit record, and what became of it.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::AtomicU32;

/// An audit record, by its request and what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Telling {
    pub(crate) request: u64,
    pub(crate) digest: u64,
}

/// What the process before had done with an audit record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// It may have been written.
    Begun,
    Told,
}

#[derive(Default)]
pub(super) struct Tellings {
    pub(super) next: AtomicU32,
    pub(super) before: Mutex<HashMap<Telling, Before>>,
}

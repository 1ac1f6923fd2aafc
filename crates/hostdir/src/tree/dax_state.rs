//! Whether a guest maps a file from the host's page cache. The guest decides when it makes its inode, by the reply to
//! the first lookup, and keeps to that until it forgets the file.

use std::sync::atomic::{AtomicU8, Ordering};
use thrufs_policy::Access;

const NAMED: u8 = 1;
const DECIDED: u8 = 2;
const REPORTED: u8 = 4;
const READ_ONLY: u8 = 8;
const WITHDRAWN: u8 = 16;
const NOTED: u8 = REPORTED | READ_ONLY | WITHDRAWN;

#[derive(Debug, Default)]
pub(crate) struct DaxState(AtomicU8);

impl DaxState {
    fn has(&self, bits: u8) -> bool {
        self.0.load(Ordering::Relaxed) & bits == bits
    }

    /// Sets bits where `permits` the state before; returns whether it does.
    fn set_if(&self, permits: impl Fn(u8) -> bool, bits: u8) -> bool {
        let set = |state| permits(state).then_some(state | bits);
        let ordering = Ordering::Relaxed;
        self.0.fetch_update(ordering, ordering, set).is_ok()
    }

    /// It has a name of those that are to be mapped.
    pub(crate) fn name(&self) {
        self.0.fetch_or(NAMED, Ordering::Relaxed);
    }

    pub(crate) fn is_named(&self) -> bool {
        self.has(NAMED)
    }

    /// The guest was told whether to map it.
    pub(crate) fn is_decided(&self) -> bool {
        self.has(DECIDED)
    }

    /// The guest is told to map it, as far as rules permit, or not to. False if it was told before.
    pub(crate) fn decide(&self, access: Option<Access>) -> bool {
        let bits = match access {
            Some(Access::Change) => REPORTED,
            Some(Access::Read) => REPORTED | READ_ONLY,
            None => 0,
        };
        self.set_if(|state| state & DECIDED == 0, bits | DECIDED)
    }

    /// The guest was told to map it.
    pub(crate) fn is_reported(&self) -> bool {
        self.has(REPORTED)
    }

    /// What the rules in force then permit.
    pub(crate) fn granted(&self) -> Option<Access> {
        self.is_reported().then(|| match self.has(READ_ONLY) {
            true => Access::Read,
            false => Access::Change,
        })
    }

    /// Rules that came later forbid it. False if it is so already.
    pub(crate) fn withdraw(&self) -> bool {
        let is_mapped = |state| state & (REPORTED | WITHDRAWN) == REPORTED;
        self.set_if(is_mapped, WITHDRAWN)
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        self.has(WITHDRAWN)
    }

    /// What the next process needs.
    pub(crate) fn noted(&self) -> u8 {
        self.0.load(Ordering::Relaxed) & NOTED
    }

    /// What a process that died has noted. What is not noted was not reported.
    pub(crate) fn resume(&self, noted: u8) {
        self.0.store(noted & NOTED | DECIDED, Ordering::Relaxed);
    }

    /// The guest has forgotten it.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

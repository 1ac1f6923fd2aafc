//! What the threads of a relay share, and its end.

use super::error::RelayError;
use crate::front_end::FrontEnd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use thrufs::mount::{MountError, unmount, unmount_unprivileged};
use vmm_sys_util::eventfd::EventFd;

pub(super) struct Shared {
    pub(super) front_end: FrontEnd,
    pub(super) target: PathBuf,
    pub(super) unprivileged: bool,
    pub(super) ends: AtomicBool,
    /// Signalled when `ends` is set; never read, so that it wakes all threads.
    pub(super) eventfd: EventFd,
    pub(super) failure: Mutex<Option<RelayError>>,
}

impl Shared {
    pub(super) fn end(&self) {
        self.ends.store(true, Ordering::Release);
        let _ = self.eventfd.write(1);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }

    pub(super) fn fail(&self, error: RelayError) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(error);
        drop(failure);
        self.end();
    }

    pub(super) fn unmount(&self, lazy: bool) -> Result<(), MountError> {
        if self.unprivileged {
            unmount_unprivileged(&self.target, lazy)
        } else {
            unmount(&self.target, lazy)
        }
    }
}

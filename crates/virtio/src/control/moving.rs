//! A transfer of the device state, in progress or ended.

use crate::device_state::Again;
use crate::session::GuestSession;
use crate::transfer::Transfer;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use thrufs::FileSystem;

pub(super) enum Moved<F: FileSystem> {
    Saved,
    Loaded {
        again: Again,
        session: Option<Arc<GuestSession<F>>>,
    },
}

/// The transfer in progress, and the result of the last.
pub(super) struct Moving<F: FileSystem> {
    pub(super) transfer: Option<Transfer<Moved<F>>>,
    pub(super) outcome: io::Result<()>,
}

impl<F: FileSystem> Default for Moving<F> {
    fn default() -> Moving<F> {
        Moving {
            transfer: None,
            outcome: Err(none_begun()),
        }
    }
}

pub(super) fn none_begun() -> io::Error {
    io::Error::other("no state is being moved")
}

impl<F: FileSystem> Moving<F> {
    /// The result of the last transfer, once.
    pub(super) fn outcome(&mut self) -> io::Result<()> {
        std::mem::replace(&mut self.outcome, Err(none_begun()))
    }

    /// Cancels a transfer. False when it does not end.
    pub(super) fn end(&mut self, deadline: Instant) -> bool {
        let transfer = self.transfer.take();
        transfer.is_none_or(|transfer| transfer.end(deadline))
    }
}

//! Replaying requests that were taken before: those that a process had in flight when it died
//! ([`crate::journal`]), and those that were interrupted for a migration.

use super::Serving;
use crate::journal::{Again, Phase};
use crate::queue::Broken;
use crate::session::MakeFileSystem;
use crate::slot::repeat_of;
use thrufs::{Opcode, Repeat};

/// Puts requests, given as they were taken, into the order in which to resume them. RELEASE and RELEASEDIR
/// go first: a file handle's number may be reused by the next open.
pub(crate) fn in_order(mut again: Vec<Again>) -> Vec<Again> {
    let closes = |again: &Again| match again.phase {
        Phase::Begun(opcode, _) => [Opcode::Release, Opcode::Releasedir]
            .map(Opcode::number)
            .contains(&opcode),
        _ => false,
    };
    again.sort_by_key(|again| !closes(again));
    again
}

impl<M: MakeFileSystem> Serving<M> {
    /// Replays requests that were taken before, and notifies the guest, which may wait for a reply that was
    /// written without a notification.
    pub(super) fn carry_out_again(&mut self) -> Result<(), Broken> {
        if self.start.again.is_empty() {
            return Ok(());
        }
        for again in std::mem::take(&mut self.start.again) {
            self.carry_on_with(again)?;
        }
        self.notify_guest()
    }

    fn carry_on_with(&mut self, again: Again) -> Result<(), Broken> {
        let Again { head, phase } = again;
        if let Phase::Answered(length) = phase {
            return self.start.queue.ring.complete(head, length);
        }
        let Some(mut slot) = self.read(head)? else {
            return Ok(());
        };
        let (Phase::Begun(_, begun), Some(session)) = (phase, self.session.clone()) else {
            return self.carry_out(slot);
        };
        match repeat_of(slot.opcode()) {
            Repeat::Harmless => return self.carry_out(slot),
            Repeat::Noted => slot.answer_again(session.dispatcher(), begun),
            Repeat::Never => {}
        }
        self.start.queue.finish(slot)
    }
}

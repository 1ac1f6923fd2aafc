//! What another process has left in flight when it died ([`crate::journal`]).

use super::Serving;
use crate::journal::{Again, Phase};
use crate::queue::Broken;
use crate::session::MakeFileSystem;
use crate::slot::repeat_of;
use thrufs::{Opcode, Repeat};

/// The order in which to carry out what another process has left: as it was taken, the next one last.
/// But what was to be closed is closed first: its number may be another file's once one is opened.
pub(crate) fn in_order(mut again: Vec<Again>) -> Vec<Again> {
    let closes = |again: &Again| match again.phase {
        Phase::Begun(opcode, _) => [Opcode::Release, Opcode::Releasedir]
            .map(Opcode::number)
            .contains(&opcode),
        _ => false,
    };
    again.reverse();
    again.sort_by_key(closes);
    again
}

impl<M: MakeFileSystem> Serving<M> {
    /// Carries out once more what another process has left, and tells the guest, who may wait for what
    /// that one had answered.
    pub(super) fn carry_out_left(&mut self) -> Result<(), Broken> {
        if self.start.left.is_empty() {
            return Ok(());
        }
        while let Some(again) = self.start.left.pop() {
            self.carry_on_with(again)?;
        }
        self.tell()
    }

    fn carry_on_with(&mut self, again: Again) -> Result<(), Broken> {
        let Again {
            head,
            number,
            phase,
        } = again;
        if let Phase::Answered(length) = phase {
            return self.start.desk.ring.complete(head, length);
        }
        let Some((mut slot, kind)) = self.read(head, number)? else {
            return Ok(());
        };
        let (Phase::Begun(_, begun), Some(session)) = (phase, self.session.clone()) else {
            return self.carry_out_slot(slot, kind).map(drop);
        };
        let length = match repeat_of(slot.opcode()) {
            Repeat::Harmless => return self.carry_out_slot(slot, kind).map(drop),
            Repeat::Noted => slot.answer_again(session.dispatcher(), begun),
            Repeat::Never => 0,
        };
        self.finish(slot, length)
    }
}

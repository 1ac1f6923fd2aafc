//! Serving together with further threads, while there is enough to do for them ([`crate::crew`]).

use super::{Carried, Serving, Sleeping, carry_out};
use crate::crew::{Found, Next, Terms};
use crate::desk::Away;
use crate::frame::Kind;
use crate::post::Returned;
use crate::queue::Broken;
use crate::session::MakeFileSystem;
use crate::slot::Slot;
use crate::steward::Row;
use thrufs::Wait;

/// What is in hand when the desk is taken away again.
enum Left {
    Nothing,
    /// What can only be carried out afterwards.
    Undone(Slot, Kind),
    /// The queue is broken.
    Unreturned(Returned),
}

impl<M: MakeFileSystem> Serving<M> {
    /// Whether more waits than this thread should do alone, once it has carried out `slot`.
    pub(super) fn has_enough_for_more(&mut self, slot: &Slot) -> bool {
        let ring = &mut self.start.desk.ring;
        let waiting = ring.waiting();
        let sees_more = || ring.has_available() == Ok(true);
        self.session.is_some() && self.crew.is_enough(slot, waiting, sees_more)
    }

    /// Carries out `slot`, and with the crew all that comes until there is nothing more, or news.
    pub(super) fn serve_together(
        &mut self,
        slot: Slot,
        kind: Kind,
        row: &mut Row,
    ) -> Result<(), Broken> {
        let Some(session) = &self.session else {
            return self.carry_out_slot(slot, kind).map(drop);
        };
        self.start.desk.away.push(Away {
            head: slot.head(),
            wait: Wait::Io,
            run: self.start.run,
        });
        let (run, call) = (self.start.run, self.start.wiring.call.as_ref());
        let terms = self.crew.lend(&mut self.start.desk, run, session, call);
        self.crew.call();
        let left = self.work_together(&terms, (slot, kind), row);
        drop(terms);
        let ended = self.crew.end_lending(&mut self.start.desk);
        match left {
            Left::Nothing => ended,
            Left::Undone(slot, kind) if ended.is_ok() => self.carry_out_undone(slot, kind),
            Left::Undone(slot, _) | Left::Unreturned(Returned { slot, .. }) => {
                // It is not away any more, though the guest will not get it.
                self.start.desk.is_back(&slot);
                ended
            }
        }
    }

    fn work_together(
        &mut self,
        terms: &Terms<M::FileSystem>,
        first: (Slot, Kind),
        row: &mut Row,
    ) -> Left {
        let mut next = Some(first);
        let mut finished = None;
        loop {
            if let Some((slot, kind)) = next.take() {
                if matches!(kind, Kind::Init | Kind::Destroy) {
                    return Left::Undone(slot, kind);
                }
                finished = self.carry_out_together(terms, slot);
            }
            match self.crew.exchange(terms, finished.take()) {
                Next::Request(taken) => match self.crew.read(terms, taken) {
                    Found::Request(slot, kind) => {
                        row.count(&slot);
                        next = Some((slot, kind));
                    }
                    Found::Malformed(returned) => finished = Some(returned),
                },
                Next::Nothing if self.stays_together(terms) => {}
                Next::Nothing | Next::Closed(None) => return Left::Nothing,
                Next::Closed(Some(unreturned)) => return Left::Unreturned(unreturned),
            }
        }
    }

    /// Returns what has to be given back.
    fn carry_out_together(&self, terms: &Terms<M::FileSystem>, slot: Slot) -> Option<Returned> {
        let post = &self.start.post;
        match carry_out(terms.session(), post, &self.shared.metrics, slot) {
            Carried::Out(returned) => Some(returned),
            Carried::Asleep(sleeping) => self.send_away(sleeping),
        }
    }

    fn send_away(&self, sleeping: Sleeping<M::FileSystem>) -> Option<Returned> {
        self.crew.note_wait(sleeping.slot.head(), sleeping.wait);
        let refused = self.shared.pool.take(sleeping).err()?;
        Some(self.carry_out_here(refused))
    }

    /// Looks out for more. False when there is none, or there is news.
    fn stays_together(&mut self, terms: &Terms<M::FileSystem>) -> bool {
        let (post, crew) = (&self.start.post, &self.crew);
        self.patience.note_request();
        let sees_more = self.patience.is_worth_it()
            && self
                .patience
                .look_out(|| post.has_news() || crew.sees_more(terms));
        sees_more && !post.has_news()
    }
}

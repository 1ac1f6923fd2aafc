//! The tables of what is in flight of one queue: ours, in the journal, and that of a front end which
//! keeps one. Both are written; ours is believed where both are there.

use super::{Inflight, Intent, Journal, Phase};

/// A request that a predecessor has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    pub(crate) head: u16,
    /// The number under which it is in flight here.
    pub(crate) number: u64,
    pub(crate) phase: Phase,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracker {
    ours: Option<Inflight>,
    theirs: Option<Inflight>,
    intents: Option<Intent>,
    /// Of what was taken last.
    number: u64,
}

impl Tracker {
    pub(crate) fn new(
        journal: Option<&Journal>,
        theirs: Option<Inflight>,
        queue: usize,
        size: u16,
    ) -> Tracker {
        Tracker {
            ours: journal.and_then(|journal| journal.inflight(queue, size)),
            theirs,
            intents: journal.map(|journal| journal.intents(queue)),
            number: 0,
        }
    }

    /// Where to note how far requests have come.
    pub(crate) fn intents(&self) -> Option<&Intent> {
        self.intents.as_ref()
    }

    /// The number of what was taken last.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The number under which `head` is in flight; 0 where nobody keeps one.
    pub(crate) fn number_of(&self, head: u16) -> u64 {
        let table = self.ours.as_ref().or(self.theirs.as_ref());
        table.map_or(0, |table| table.number(head))
    }

    /// Begins with a queue of which `heads` are in flight, nothing else.
    pub(crate) fn begin(&mut self, used: u16, heads: &[u16]) {
        for table in [&mut self.ours, &mut self.theirs].into_iter().flatten() {
            table.begin(used, heads.iter().copied());
        }
    }

    /// What a predecessor has left in flight, in the order in which it was taken; none when it has not
    /// begun with this queue. With `base`, from where the front end wants requests taken, only when
    /// that is where the predecessor has stopped.
    pub(crate) fn recover(&mut self, used: u16, base: Option<u16>) -> Option<Vec<Again>> {
        let stopped_at = |heads: &[(u16, u64)]| used.wrapping_add(heads.len() as u16);
        let ours = self.ours.as_mut().and_then(|table| table.recover(used));
        if let Some(heads) = ours {
            if base.is_some_and(|base| base != stopped_at(&heads)) {
                return None;
            }
            if let Some(theirs) = &mut self.theirs {
                theirs.begin(used, heads.iter().map(|&(head, _)| head));
            }
            let again = |(head, number)| Again {
                head,
                number,
                phase: self.phase(head, number),
            };
            return Some(heads.into_iter().map(again).collect());
        }
        // Of another daemon, that is gone with all that it knew. What was in flight is answered.
        let heads = self.theirs.as_mut()?.recover(used)?;
        let mut again = Vec::with_capacity(heads.len());
        if let Some(ours) = &mut self.ours {
            ours.begin(used, []);
        }
        for (head, number) in heads {
            let ours = self.ours.as_mut().map(|ours| ours.take(head));
            again.push(Again {
                head,
                number: ours.unwrap_or(number),
                phase: Phase::Taken,
            });
        }
        Some(again)
    }

    fn phase(&self, head: u16, number: u64) -> Phase {
        let intents = self.intents.as_ref();
        intents.map_or(Phase::Taken, |intents| intents.phase(head, number))
    }

    /// `head` was taken.
    pub(crate) fn take(&mut self, head: u16) {
        if let Some(theirs) = &mut self.theirs {
            self.number = theirs.take(head);
        }
        if let Some(ours) = &mut self.ours {
            self.number = ours.take(head);
        }
    }

    /// `head` is about to be given back.
    pub(crate) fn begin_to_give_back(&self, head: u16) {
        for table in [&self.ours, &self.theirs].into_iter().flatten() {
            table.begin_to_give_back(head);
        }
    }

    /// It was: the used index is `used` now.
    pub(crate) fn gave_back(&self, head: u16, used: u16) {
        for table in [&self.ours, &self.theirs].into_iter().flatten() {
            table.gave_back(head, used);
        }
    }
}

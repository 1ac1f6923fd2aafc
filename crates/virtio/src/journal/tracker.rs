//! The in-flight tables of one queue: the journal's, and the front end's if it has one. Both are written; on
//! recovery the journal's takes precedence.

use super::{Inflight, Intent, Journal, Phase};

/// A request to be replayed: taken before, by this process or another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    pub(crate) head: u16,
    pub(crate) phase: Phase,
}

impl Again {
    /// One that was not begun, or may be executed twice.
    pub(crate) fn taken(head: u16) -> Again {
        let phase = Phase::Taken;
        Again { head, phase }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Tracker {
    ours: Option<Inflight>,
    theirs: Option<Inflight>,
    intents: Option<Intent>,
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
        }
    }

    /// Records the progress of requests.
    pub(crate) fn intents(&self) -> Option<&Intent> {
        self.intents.as_ref()
    }

    /// The number under which `head` is in flight; 0 without a journal.
    pub(crate) fn number_of(&self, head: u16) -> u64 {
        self.ours.as_ref().map_or(0, |table| table.number(head))
    }

    /// Begins with a queue of which only `heads` are in flight.
    pub(crate) fn begin(&mut self, used: u16, heads: &[u16]) {
        for table in [&mut self.ours, &mut self.theirs].into_iter().flatten() {
            table.begin(used, heads.iter().copied());
        }
    }

    /// The requests that the last worker left in flight, in the order in which they were taken; `None` when
    /// it had not begun with this queue. With `base`, a base set by the front end, only when the last worker
    /// stopped there.
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
            let intents = self.intents.as_ref();
            let again = |(head, number)| Again {
                head,
                phase: intents.map_or(Phase::Taken, |intents| intents.phase(head, number)),
            };
            return Some(heads.into_iter().map(again).collect());
        }
        // Of another daemon, without progress records: the requests are executed.
        let heads = self.theirs.as_mut()?.recover(used)?;
        let heads = heads.into_iter().map(|(head, _)| head);
        if let Some(ours) = &mut self.ours {
            ours.begin(used, heads.clone());
        }
        Some(heads.map(Again::taken).collect())
    }

    pub(crate) fn take(&mut self, head: u16) {
        for table in [&mut self.ours, &mut self.theirs].into_iter().flatten() {
            table.take(head);
        }
    }

    pub(crate) fn begin_to_give_back(&self, head: u16) {
        for table in [&self.ours, &self.theirs].into_iter().flatten() {
            table.begin_to_give_back(head);
        }
    }

    /// Records that it was returned; `used` is the new used index.
    pub(crate) fn gave_back(&self, head: u16, used: u16) {
        for table in [&self.ours, &self.theirs].into_iter().flatten() {
            table.gave_back(head, used);
        }
    }
}

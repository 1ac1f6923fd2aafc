//! Finds readers that are stuck, and puts in others.
//!
//! Most requests take microseconds, and whether one will sleep in a lower file system cannot be
//! known beforehand. If all readers sleep in such requests, nobody reads the next one. The steward
//! looks at the crew every 2 ms while there is something to look at. When every reader has had the
//! same request for two looks, it takes the role of one and calls in another, until one is idle or
//! the bound for sleeping requests is reached. So a stall of all readers lasts 2 to 4 ms.
//!
//! A reader that is paired and at work is looked after as well ([`crate::transport::pairing`]).

use super::crew::{Crew, Matchmaker};
use crate::file_system::FileSystem;
use crate::serving::{Alarm, Counted, Monitor, start_monitor};
use std::io;
use std::sync::Arc;
use std::time::Instant;

pub(super) fn start<F: FileSystem>(crew: &Arc<Crew<F>>) -> io::Result<()> {
    let steward = Steward {
        crew: Arc::clone(crew),
        matchmaker: Matchmaker::new(crew),
        _count: crew.connection.control.thread(),
    };
    start_monitor(&crew.alarm, steward).map(drop)
}

struct Steward<F> {
    crew: Arc<Crew<F>>,
    matchmaker: Matchmaker,
    /// Last: whoever sees no thread left may rely on that.
    _count: Counted,
}

impl<F: FileSystem> Monitor for Steward<F> {
    fn alarm(&self) -> &Alarm {
        &self.crew.alarm
    }

    fn is_ending(&self) -> bool {
        self.crew.connection.control.is_stopping()
    }

    fn look(&mut self, now: Instant) -> bool {
        let paired = self.matchmaker.look(&self.crew, now);
        let worry = self.crew.look_after();
        paired || worry
    }

    fn rest(&mut self) {
        self.matchmaker.rest(&self.crew);
    }

    fn is_needed(&self) -> bool {
        self.crew.is_busy()
    }
}

//! Finds readers that are stuck, and puts in others.
//!
//! Most requests take microseconds, and whether one will sleep in a lower file system cannot be
//! known beforehand. If all readers sleep in such requests, nobody reads the next one. The steward
//! looks at the crew every 2 ms while there is something to look at. When every reader has had the
//! same request for two looks, it takes the role of one and calls in another, until one is idle or
//! the bound for sleeping requests is reached. So a stall of all readers lasts 2 to 4 ms.
//!
//! While nobody has a request the steward sleeps. The first request after that wakes it; later ones
//! find it awake by a look at a flag. It goes to sleep again when nobody has had a request that
//! lasts for 100 ms, and no reader is paired and at work ([`crate::transport::pairing`]), which it looks after as
//! well.

use super::crew::{Crew, Matchmaker};
use crate::transport::confine_signals;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LOOK_INTERVAL: Duration = Duration::from_millis(2);
const CALM_LOOKS: u32 = 50;

pub(super) fn start(crew: &Arc<Crew>) -> io::Result<()> {
    let count = crew.control().thread();
    let watched = Arc::clone(crew);
    let thread = std::thread::Builder::new()
        .name("thrufs-steward".to_owned())
        .spawn(move || {
            confine_signals();
            watch(&watched);
            drop(watched);
            drop(count);
        })?;
    crew.set_steward(thread.thread().clone());
    Ok(())
}

fn watch(crew: &Arc<Crew>) {
    let stopping = || crew.control().is_stopping();
    let mut matchmaker = Matchmaker::new(crew);
    while !stopping() {
        if !crew.is_armed() {
            std::thread::park();
            continue;
        }
        let mut calm = 0;
        while !stopping() {
            std::thread::park_timeout(LOOK_INTERVAL);
            let paired = matchmaker.look(crew, Instant::now());
            let worry = crew.look_after();
            calm = if paired || worry { 0 } else { calm + 1 };
            if calm >= CALM_LOOKS {
                matchmaker.rest(crew);
                if crew.disarm() {
                    break;
                }
                calm = 0;
            }
        }
    }
    // What it has in hand shall be done soon, whoever else wants its CPU.
    matchmaker.rest(crew);
}

//! What the supervisor has of a connection, so that it outlives the worker that serves it: the front
//! end's socket, what the front end has said, and the memory in which workers note what their successors
//! have to know.
//!
//! A worker that dies by a signal is followed by another on the same connection. One that ends by itself
//! has its reason, and ends the connection. So does a request by which every worker dies: after as many
//! deaths as `resume` says within a minute, it is given up.

use super::{callers, strongbox};
use crate::channel::{Channel, Message};
use crate::config::ShareConfig;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use thrufs_hostdir::Ledger;
use thrufs_virtio::{Journal, Keeper};

/// Deaths that lie so far back do not count any more.
const PERIOD: Duration = Duration::from_secs(60);

/// A connection that is kept.
#[derive(Debug)]
pub(super) struct Keeping {
    keeper: Keeper,
    journal: Journal,
    ledger: Ledger,
    /// The workers' end.
    strongbox: OwnedFd,
    /// What tells of the threads of the front end.
    callers: Vec<OwnedFd>,
    deaths: VecDeque<Instant>,
    deaths_max: usize,
}

impl Keeping {
    /// Begins to keep who is connected by `stream`.
    ///
    /// # Errors
    ///
    /// No descriptors, no memory, no threads.
    pub(super) fn begin(stream: OwnedFd, config: &ShareConfig) -> io::Result<Keeping> {
        let journal = Journal::new()?;
        let callers = match config.pairing {
            true => callers::open(stream.as_fd()),
            false => Vec::new(),
        };
        Ok(Keeping {
            keeper: Keeper::start(UnixStream::from(stream), journal.clone())?,
            journal,
            ledger: Ledger::new()?,
            strongbox: strongbox::begin()?,
            callers,
            deaths: VecDeque::new(),
            deaths_max: config.deaths_max,
        })
    }

    /// Gives the connection to the worker at the other end of `channel`. Its predecessor has ended.
    ///
    /// # Errors
    ///
    /// No descriptors; a worker that has died, which is seen elsewhere.
    pub(super) fn hand_to(&self, channel: &Channel) -> io::Result<()> {
        let (ours, theirs) = UnixStream::pair()?;
        let copy = |descriptor: &dyn AsFd| descriptor.as_fd().try_clone_to_owned();
        let callers: io::Result<Vec<OwnedFd>> = self.callers.iter().map(|one| copy(one)).collect();
        channel.send(&Message::Callers(callers?))?;
        channel.send(&Message::Connection([
            theirs.into(),
            copy(&self.journal)?,
            copy(&self.ledger)?,
            copy(&self.strongbox)?,
        ]))?;
        self.keeper.attach(ours);
        Ok(())
    }

    /// The worker has ended like this. Whether another is to go on with the connection, and if not,
    /// perhaps why.
    pub(super) fn outlives(&mut self, status: ExitStatus) -> Result<(), Option<String>> {
        if status.signal().is_none() || !self.keeper.is_connected() {
            return Err(None);
        }
        let now = Instant::now();
        self.deaths.push_back(now);
        self.deaths
            .retain(|death| now.duration_since(*death) < PERIOD);
        self.journal.count_death();
        let times = self.deaths.len();
        if times > self.deaths_max {
            return Err((self.deaths_max > 0).then(|| {
                format!(
                    "its workers died {times} times within a minute, possibly because of a request"
                )
            }));
        }
        Ok(())
    }

    /// How many workers have died on it.
    pub(super) fn deaths(&self) -> u64 {
        self.journal.deaths()
    }
}

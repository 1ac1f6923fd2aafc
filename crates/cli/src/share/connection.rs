//! A connection that outlives its worker: the front end's socket, the state the front end has set, and
//! the memory in which workers record what the next worker needs.
//!
//! A worker that dies by a signal is followed by another on the same connection. One that exits ends the
//! connection. After more deaths than `resume` within a minute, which one request may cause, the
//! connection is closed.

use super::callers;
use crate::channel::{Order, ToChild};
use crate::config::ShareConfig;
use crate::deaths::Deaths;
use crate::fd_store::Store;
use crate::foreign::Foreign;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use thrufs_hostdir::Ledger;
use thrufs_virtio::{Journal, VhostProxy};

#[derive(Debug)]
pub(super) struct Connection {
    proxy: VhostProxy,
    journal: Journal,
    ledger: Ledger,
    fd_store: Store,
    /// Of the front end's threads.
    callers: Vec<OwnedFd>,
    deaths: Deaths,
}

impl Connection {
    pub(super) fn begin(
        stream: &Foreign<OwnedFd>,
        config: &ShareConfig,
    ) -> io::Result<Foreign<Connection>> {
        let journal = Journal::new()?;
        let callers = match config.server.pairing {
            true => callers::open(stream.as_fd()),
            false => Vec::new(),
        };
        let stream = UnixStream::from(stream.try_clone()?);
        Ok(Foreign::new(Connection {
            ledger: Ledger::new()?,
            fd_store: Store::start(config.machines_max)?,
            callers,
            deaths: Deaths::new(config.server.deaths_max),
            // Last: dropping it waits for its thread.
            proxy: VhostProxy::start(stream, journal.clone())?,
            journal,
        }))
    }

    /// Gives the connection to the worker at `channel`. The previous worker has ended.
    pub(super) fn hand_to(&self, channel: &ToChild) -> io::Result<()> {
        let (ours, theirs) = UnixStream::pair()?;
        // Before the worker can send to it.
        self.proxy.attach(ours);
        let callers = self.callers.iter().map(|file| file as &dyn AsFd);
        let kept: [&dyn AsFd; 3] = [&self.journal, &self.ledger, &self.fd_store];
        let copies = kept.into_iter().chain(callers);
        let copies = copies.map(|file| file.as_fd().try_clone_to_owned());
        let all: io::Result<Vec<OwnedFd>> = [Ok(theirs.into())].into_iter().chain(copies).collect();
        let message = Foreign::new(Order::Connection(all?));
        channel.send(&message)
    }

    /// Whether the next worker resumes the connection; if not, an optional reason.
    pub(super) fn outlives(&mut self, status: ExitStatus) -> Result<(), Option<String>> {
        if status.signal().is_none() || !self.proxy.is_connected() {
            return Err(None);
        }
        self.journal.count_death();
        self.deaths.count()
    }

    pub(super) fn deaths(&self) -> u64 {
        self.journal.deaths()
    }
}

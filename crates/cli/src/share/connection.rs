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
use crate::fd_store::{Store, Stored};
use crate::foreign::Foreign;
use crate::upgrade::handover::{Incoming, MachineState, Outgoing, Slot};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Instant;
use thrufs_hostdir::Ledger;
use thrufs_virtio::{Journal, ProxyState, VhostProxy};

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
        let callers = callers_of(stream.as_fd(), config);
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

    /// Goes on with what an earlier program of this process has handed over.
    pub(super) fn resume(
        state: MachineState,
        files: &mut Incoming,
        config: &ShareConfig,
    ) -> io::Result<Foreign<Connection>> {
        let proxy = files.take_all(Slot::Proxy);
        let callers = proxy
            .first()
            .map(|stream| callers_of(stream.as_fd(), config));
        let proxy = ProxyState {
            bytes: state.proxy,
            files: proxy,
        };
        let [end, socket] = [Slot::StoreEnd, Slot::StoreSocket].map(|slot| files.take(slot));
        let journal = Journal::from_memory(files.take(Slot::Journal)?)?;
        Ok(Foreign::new(Connection {
            ledger: files.take(Slot::Ledger)?.into(),
            fd_store: Store::resume(config.machines_max, [end?, socket?], files.take_stored())?,
            callers: callers.unwrap_or_default(),
            deaths: Deaths::resume(config.server.deaths_max, &state.deaths),
            proxy: VhostProxy::resume(proxy, journal.clone())?,
            journal,
        }))
    }

    /// What the next program goes on with, once the worker has ended. This one may [go on](Self::go_on).
    ///
    /// # Errors
    ///
    /// As [`VhostProxy::suspend`].
    pub(super) fn suspend(&mut self, deadline: Instant) -> io::Result<ProxyState> {
        if !self.fd_store.suspend(deadline) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let suspended = self.proxy.suspend(deadline);
        if suspended.is_err() {
            self.fd_store.go_on()?;
        }
        suspended
    }

    /// Goes on after it was suspended.
    pub(super) fn go_on(&mut self, proxy: ProxyState) -> io::Result<()> {
        self.fd_store.go_on()?;
        self.proxy = VhostProxy::resume(proxy, self.journal.clone())?;
        Ok(())
    }

    /// Its own descriptors.
    pub(super) fn hand_over<'a>(&'a self, files: &mut Outgoing<'a>) {
        files.add(Slot::Journal, &self.journal);
        files.add(Slot::Ledger, &self.ledger);
        files.add(Slot::StoreEnd, self.fd_store.end());
        files.add(Slot::StoreSocket, &self.fd_store);
    }

    /// What is in the descriptor store.
    pub(super) fn stored(&self) -> impl Deref<Target = Stored> {
        self.fd_store.stored()
    }

    /// What is handed over of it, without the proxy.
    pub(super) fn state(&self) -> MachineState {
        MachineState {
            deaths: self.deaths.ages(),
            ..MachineState::default()
        }
    }

    pub(super) fn proxy(&self) -> &VhostProxy {
        &self.proxy
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

    /// Its worker was killed so that another resumes. The next one notifies the guest of what this one has returned.
    pub(super) fn count_replaced(&self) {
        self.journal.count_death();
    }

    pub(super) fn deaths(&self) -> u64 {
        self.journal.deaths()
    }
}

fn callers_of(stream: BorrowedFd<'_>, config: &ShareConfig) -> Vec<OwnedFd> {
    match config.server.pairing {
        true => callers::open(stream),
        false => Vec::new(),
    }
}

//! The sockets of a share for clients other than front ends: for queries, upgrades, and metrics.
//!
//! Queries and scrapers are answered on two threads; reloads and upgrades are the supervisor's. An upgrade hands all
//! sockets over: clients that connect meanwhile wait in them.

use super::ShareError;
use super::figures::Machines;
use crate::config::ServerConfig;
use crate::control::protocol::Command;
use crate::control::reload::{Outcome, by_supervisor};
use crate::control::server::answer_all;
use crate::control::socket::{ControlSocket, Purpose};
use crate::error::{StartupError, system};
use crate::listening::SocketFile;
use crate::metrics::{self, answer_scrapers};
use crate::task::start_thread;
use crate::upgrade::handover::{Incoming, Outgoing, Slot};
use crate::upgrade::request::Request;
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

pub(super) struct ClientSockets {
    /// Not published yet.
    control: Vec<ControlSocket>,
    /// Those that are, removed on drop.
    files: Vec<SocketFile>,
    /// These two are for the next program; the threads have copies.
    queries: Option<OwnedFd>,
    metrics: Option<OwnedFd>,
    upgrades: Option<OwnedFd>,
    /// A pipe by which the control thread asks for a reload, and where it waits for the outcome.
    reloads: Option<(OwnedFd, Sender<Outcome>)>,
}

impl ClientSockets {
    pub(super) fn open(
        config: &ServerConfig,
        machines: &Arc<Machines>,
    ) -> Result<ClientSockets, ShareError> {
        let make = |purpose| ControlSocket::make_if_possible(&config.control, purpose);
        let (control, queries) = make(Purpose::Queries)?.unzip();
        let upgrades = match config.deaths_max {
            0 => None,
            _ => make(Purpose::Upgrades)?,
        };
        let (for_upgrades, upgrades) = upgrades.unzip();
        let metrics = config.metrics.as_ref().map(metrics::listen);
        let metrics = metrics.transpose()?.map(|metrics| {
            tracing::info!("{}", metrics.at);
            (metrics.listener, metrics.file)
        });
        let (metrics, file) = metrics.unzip();
        let mut sockets = ClientSockets {
            control: control.into_iter().chain(for_upgrades).collect(),
            files: file.flatten().into_iter().collect(),
            queries,
            metrics,
            upgrades,
            reloads: None,
        };
        sockets.answer(machines)?;
        Ok(sockets)
    }

    /// Names the control sockets: `usual`, unless a path was given.
    pub(super) fn publish(&mut self, usual: &str) {
        for control in std::mem::take(&mut self.control) {
            let published = control.published(usual.to_owned());
            self.files.extend(published.map(ControlSocket::into_file));
        }
    }

    /// Goes on with what an earlier program of this process has [handed over](Self::hand_over).
    pub(super) fn resume(
        files: &mut Incoming,
        machines: &Arc<Machines>,
    ) -> Result<ClientSockets, StartupError> {
        let made = files.take_all(Slot::SocketFile).into_iter();
        let mut sockets = ClientSockets {
            control: Vec::new(),
            files: made.map(SocketFile::from).collect(),
            queries: files.take_if_given(Slot::Queries),
            metrics: files.take_if_given(Slot::Metrics),
            upgrades: files.take_if_given(Slot::Upgrades),
            reloads: None,
        };
        sockets.answer(machines)?;
        Ok(sockets)
    }

    pub(super) fn hand_over<'a>(&'a self, files: &mut Outgoing<'a>) {
        files.add_if(Slot::Queries, self.queries.as_ref());
        files.add_if(Slot::Metrics, self.metrics.as_ref());
        files.add_if(Slot::Upgrades, self.upgrades.as_ref());
        for (number, file) in (0..).zip(&self.files) {
            files.add(Slot::SocketFile(number), file);
        }
    }

    /// Starts the threads that answer.
    fn answer(&mut self, machines: &Arc<Machines>) -> Result<(), StartupError> {
        if let Some(queries) = &self.queries {
            let queries = queries.try_clone();
            let started = queries.and_then(|queries| answer_queries(queries, Arc::clone(machines)));
            self.reloads = Some(started.map_err(system("listen at the control socket"))?);
        }
        if let Some(metrics) = &self.metrics {
            let (listener, machines) = (metrics.try_clone(), Arc::clone(machines));
            let started = listener.and_then(|listener| {
                start_thread("thrufs-metrics", move || {
                    let answer = &mut |command: &Command| machines.answer(command);
                    answer_scrapers(listener, &machines.shown_place(), answer);
                })
            });
            started.map_err(system("serve metrics"))?;
        }
        Ok(())
    }

    /// Readable if the control thread may ask for a reload.
    pub(super) fn reloads(&self) -> Option<BorrowedFd<'_>> {
        self.reloads.as_ref().map(|(asked, _)| asked.as_fd())
    }

    /// Whether the control thread asks for a reload. If it has ended, it will not any more.
    pub(super) fn takes_reload(&mut self) -> bool {
        let read = self
            .reloads()
            .map(|asked| rustix::io::read(asked, &mut [0; 16]));
        match read {
            Some(Ok(0)) => self.reloads = None,
            Some(Ok(_)) => return true,
            Some(Err(_)) | None => {}
        }
        false
    }

    pub(super) fn reply_to_reload(&self, outcome: Outcome) {
        if let Some((_, outcomes)) = &self.reloads {
            let _ = outcomes.send(outcome);
        }
    }

    /// Readable if a command connects.
    pub(super) fn upgrades(&self) -> Option<BorrowedFd<'_>> {
        self.upgrades.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn accept_upgrade(&self) -> Option<Request> {
        self.upgrades.as_ref().and_then(Request::accept)
    }
}

/// Returns by what the thread asks for reloads, and where it waits for the outcome.
fn answer_queries(
    queries: OwnedFd,
    machines: Arc<Machines>,
) -> io::Result<(OwnedFd, Sender<Outcome>)> {
    let (asked, ask) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let (sender, outcomes) = channel();
    start_thread("thrufs-control", move || {
        answer_all(queries, &mut |command| match command {
            Command::Reload => {
                by_supervisor(&outcomes, || Ok(rustix::io::write(&ask, b"!").map(drop)?))
            }
            command => machines.answer(command),
        });
    })?;
    Ok((asked, sender))
}

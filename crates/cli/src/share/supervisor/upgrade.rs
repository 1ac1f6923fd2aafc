//! Another program goes on with this share ([`upgrade`](crate::upgrade)).
//!
//! Until the program is executed, this one holds everything, and its workers resume should the other's not serve. One
//! machine shows whether they do; the others notice nothing before the program is executed.
//!
//! | step | machines | if it fails |
//! |---|---|---|
//! | the program is started, and reads what it would be given | | it is refused |
//! | front ends are held: no further message is read | | it is refused |
//! | a worker of it is on standby, instead of the last one | | the last program's is |
//! | it resumes one machine, whose worker is killed | one | a worker of the last program resumes it |
//! | all workers are killed, and the program is executed | all | workers of the last program resume them |
//!
//! execve(2) closes what it does not hand over, and waits for threads. Neither must wait for a peer: what peers have sent
//! is handed over in a socket, and closed here before, for a limited time.

use super::{END_TIMEOUT, ShareSupervisor, Then};
use crate::channel::wait_for_threads;
use crate::config::ShareConfig;
use crate::confinement::raise_descriptor_limit;
use crate::foreign::{Foreign, wait_until_closed};
use crate::log;
use crate::output::report;
use crate::policy_file::PolicyFiles;
use crate::process::{OWN_PROGRAM, Role, start_with_socket};
use crate::share::client_sockets::ClientSockets;
use crate::share::connection::Connection;
use crate::share::error::ShareError;
use crate::share::figures::Machines;
use crate::share::incoming::AllIncoming;
use crate::share::listener::ShareListener;
use crate::share::workers::{Proof, ShareWorker, StandbyState};
use crate::supervisor;
use crate::upgrade::check::Upgrade;
use crate::upgrade::execute::{execute, inherited};
use crate::upgrade::handover::{
    Incoming, MachineState, Outgoing, ShareState, Slot, State, put, receive,
};
use crate::upgrade::request::{self, Request};
use std::collections::VecDeque;
use std::error::Error;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thrufs_sys::apart::Apart;
use thrufs_virtio::ProxyState;

/// For the thread of a proxy to reply, which may wait for its front end.
const FRONT_END_TIMEOUT: Duration = Duration::from_secs(1);

/// For a worker of the new program to get ready, and to resume a machine.
const PROVING_TIMEOUT: Duration = Duration::from_secs(10);

/// Most machines of which one is to show that the new program serves: they may disconnect.
const GIVEN_MAX: u32 = 8;

/// For killed workers to end. A machine whose worker does not is disconnected, as after a death.
const WORKERS_TIMEOUT: Duration = Duration::from_secs(10);

/// For what is written to logs.
const LOGS_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection without a worker, and what its proxy has had.
type Suspended = (Foreign<Connection>, Foreign<ProxyState>);

/// The process (see [`Role::ShareSupervisor`]) that another program has executed; `number` is of what that hands over.
pub(crate) fn main(number: &OsStr) -> ExitCode {
    let served = ShareSupervisor::take_over(number).and_then(|mut supervisor| {
        log::limit();
        Ok(supervisor.serve()?)
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(format_args!("thrufs: {error}"));
            ExitCode::FAILURE
        }
    }
}

impl ShareSupervisor {
    /// Begins to upgrade, or says why not.
    pub(super) fn begin_upgrade(&mut self, request: Request) {
        let why = match () {
            () if self.upgrade.is_some() => "another upgrade is in progress".to_owned(),
            () if !self.orphans.is_empty() => {
                "a virtual machine is being resumed: try again".to_owned()
            }
            () => match self.hold() {
                Ok(()) => {
                    self.release();
                    return self.check(request);
                }
                Err(why) => why,
            },
        };
        self.release();
        tracing::error!("not upgraded: {why}");
        request.finish(Err(why));
    }

    fn check(&mut self, request: Request) {
        let begun = self.connections().map(|it| (it, None)).collect();
        let begun = self.put(&request, begun).and_then(|(ours, theirs)| {
            let program = request.program();
            let start = move |mut socket: Vec<OwnedFd>| {
                let socket = socket.pop().ok_or(ErrorKind::NotFound)?;
                start_with_socket(&program, Role::UpgradeCheck, socket)
            };
            let started = self.apart.call(&[theirs.as_fd()], start)?;
            Ok((ours, started))
        });
        match begun {
            Ok((ours, started)) => match Upgrade::begin(request, ours, move || started) {
                Ok(upgrade) => self.upgrade = Some(upgrade),
                Err(error) => tracing::error!("cannot upgrade: {error}"),
            },
            Err(error) => request.finish(Err(format!("cannot hand over: {error}"))),
        }
    }

    fn connections(&self) -> impl Iterator<Item = &Connection> {
        let workers = self.workers.iter();
        workers.filter_map(|worker| worker.connection.as_deref())
    }

    /// Has front ends wait, until they are [released](Self::release).
    fn hold(&self) -> Result<(), String> {
        let deadline = Instant::now() + FRONT_END_TIMEOUT;
        for connection in self.connections() {
            match connection.proxy().hold(deadline) {
                Ok(true) => return Err("a virtual machine is migrating".to_owned()),
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    let why = "a virtual machine monitor does not read its replies, or has sent what takes long to \
                               close";
                    return Err(why.to_owned());
                }
                // Or it has disconnected.
                Ok(false) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn release(&self) {
        self.connections().for_each(|it| it.proxy().release());
        self.orphans.iter().for_each(|it| it.proxy().release());
    }

    /// The program of which workers are started.
    pub(super) fn program(&self) -> PathBuf {
        let proving = self.upgrade.as_ref().and_then(Upgrade::proving);
        proving.unwrap_or_else(|| OWN_PROGRAM.into())
    }

    /// The new program has answered. If it can take over, a worker of it is next.
    pub(super) fn on_checked(&mut self) -> Result<(), ShareError> {
        let checked = self.upgrade.as_mut().map_or(Ok(()), Upgrade::checked);
        let checked = checked.and_then(|()| match self.orphans.is_empty() {
            true => self.hold(),
            false => Err("a virtual machine is being resumed: try again".to_owned()),
        });
        if let Err(why) = checked {
            self.release();
            self.finish_upgrade(Err(why));
            return Ok(());
        }
        tracing::info!("upgrading: another program serves {}", self.shown());
        self.end_standby();
        self.phase = StandbyState::Starting;
        self.proof = Some(Proof {
            deadline: Instant::now() + PROVING_TIMEOUT,
            process: None,
            given: 0,
        });
        match self.start_worker() {
            Ok(()) => Ok(()),
            Err(error) => self.go_back(&format!("does not start ({error})")),
        }
    }

    fn shown(&self) -> String {
        self.config.socket.display().to_string()
    }

    pub(super) fn finish_upgrade(&mut self, outcome: Result<(), String>) {
        self.proof = None;
        if let Some(upgrade) = self.upgrade.take() {
            if let Err(why) = &outcome {
                tracing::error!("{} is not upgraded: {why}", self.shown());
            }
            upgrade.request.finish(outcome);
        }
    }

    pub(super) fn proof_deadline(&self) -> Option<Instant> {
        self.proof.as_ref().map(|proof| proof.deadline)
    }

    /// Whether this worker is to show that the new program serves.
    pub(super) fn is_proving(&self, worker: &ShareWorker) -> bool {
        let proof = self.proof.as_ref();
        proof.is_some_and(|proof| {
            worker.connection.is_none() || proof.process == Some(worker.process.id())
        })
    }

    /// The one that resumes a machine.
    pub(super) fn proving(&self) -> Option<&Connection> {
        let process = self.proof.as_ref()?.process?;
        let mut workers = self.workers.iter();
        let worker = workers.find(|it| it.process.id() == process)?;
        worker.connection.as_deref()
    }

    /// Kills a worker, and returns its connection, if the next worker may resume it.
    fn end_worker(&mut self, index: usize, deadline: Instant) -> Option<Foreign<Connection>> {
        let mut worker = self.workers.swap_remove(index);
        let process = worker.process.id();
        worker.process.kill();
        let left = deadline.saturating_duration_since(Instant::now());
        let has_ended = worker.process.has_ended_within(left);
        if has_ended {
            let _ = worker.process.wait();
        }
        let connection = worker.connection.take();
        if let Some(connection) = &connection {
            self.machines.remove(process, has_ended);
            connection.count_replaced();
        }
        worker.queries.close();
        self.close(worker);
        if has_ended {
            return connection;
        }
        tracing::error!("requests do not end: process {process} stays until they do");
        if let Some(connection) = connection {
            self.close(connection);
        }
        None
    }

    fn end_standby(&mut self) {
        let mut workers = self.workers.iter();
        if let Some(index) = workers.position(|it| it.connection.is_none()) {
            self.end_worker(index, Instant::now() + END_TIMEOUT);
        }
    }

    /// The worker of the new program is ready. It resumes a machine, if one is connected.
    pub(super) fn on_proving_ready(&mut self) -> Result<(), ShareError> {
        let process = self.standby().map(|worker| worker.process.id());
        let request = self.upgrade.as_ref().map(|upgrade| &upgrade.request);
        let (Some(process), Some(request)) = (process, request) else {
            return Ok(());
        };
        if !request.is_executed_by(process) {
            return self.go_back("is a script, or executed by another program");
        }
        if self.orphans.is_empty() {
            let mut workers = self.workers.iter();
            let Some(index) = workers.position(|it| it.connection.is_some()) else {
                return self.replace_program();
            };
            let connection = self.end_worker(index, Instant::now() + WORKERS_TIMEOUT);
            self.orphans.extend(connection);
        }
        let Some(connection) = self.orphans.pop_front() else {
            return self.go_back("cannot resume a virtual machine whose worker does not end");
        };
        connection.proxy().take_served();
        if let Some(proof) = &mut self.proof {
            proof.process = Some(process);
            proof.given += 1;
            proof.deadline = Instant::now() + PROVING_TIMEOUT;
        }
        self.give(connection);
        Ok(())
    }

    /// A worker of the new program has received all that a front end has set.
    pub(super) fn on_served(&mut self) -> Result<(), ShareError> {
        match self.proving() {
            Some(connection) if connection.proxy().take_served() => self.replace_program(),
            _ => Ok(()),
        }
    }

    /// The worker that was to serve has ended.
    pub(super) fn on_proof_ended(
        &mut self,
        mut worker: Foreign<ShareWorker>,
        status: ExitStatus,
    ) -> Result<Then, ShareError> {
        let connection = worker.connection.as_ref();
        if connection.is_some_and(|it| !it.proxy().is_connected()) {
            let ended = self.after_end(worker, Some(status));
            return match ended {
                Ok(Then::Continue(())) => self.prove_with_another().map(Then::Continue),
                ended => {
                    self.finish_upgrade(Err("the share ends".to_owned()));
                    ended
                }
            };
        }
        if let Some(upgrade) = &mut self.upgrade {
            upgrade.failure = worker.exit_reason.take();
        }
        if let Some(connection) = worker.connection.take() {
            self.machines.remove(worker.process.id(), true);
            connection.count_replaced();
            self.orphans.push_front(connection);
        }
        self.close(worker);
        self.go_back("ended before it served").map(Then::Continue)
    }

    /// The machine that was to show that the new program serves has disconnected: another one shows it, if there is one.
    fn prove_with_another(&mut self) -> Result<(), ShareError> {
        match &mut self.proof {
            Some(proof) if proof.given < GIVEN_MAX => proof.process = None,
            _ => return self.go_back("has nobody to serve: virtual machines disconnect"),
        }
        match self.start_worker() {
            Ok(()) => Ok(()),
            Err(error) => self.go_back(&format!("does not start ({error})")),
        }
    }

    /// A worker of the new program does not serve: those of the old one do.
    pub(super) fn go_back(&mut self, why: &str) -> Result<(), ShareError> {
        let proving = self.proof.as_ref().and_then(|proof| proof.process);
        let failure = self.upgrade.as_mut().and_then(|it| it.failure.take());
        let said = failure.map_or(String::new(), |failure| format!(" ({failure})"));
        let why = format!("the new program {why}{said}; the old one goes on");
        self.end_standby();
        let mut workers = self.workers.iter();
        if let Some(index) = workers.position(|it| Some(it.process.id()) == proving) {
            let connection = self.end_worker(index, Instant::now() + WORKERS_TIMEOUT);
            self.orphans.extend(connection);
        }
        self.release();
        // From now on, workers are of the old one.
        self.finish_upgrade(Err(why));
        self.start_standby()
    }

    /// Ends all workers, and executes the new program in this process; returns if that fails, and goes on.
    fn replace_program(&mut self) -> Result<(), ShareError> {
        self.kill();
        let deadline = Instant::now() + WORKERS_TIMEOUT;
        while !self.workers.is_empty() {
            let connection = self.end_worker(0, deadline);
            self.orphans.extend(connection);
        }
        // They may write an audit record for a dead worker.
        wait_for_threads(LOGS_TIMEOUT);
        let error = match wait_until_closed(Instant::now() + END_TIMEOUT) {
            true => self.execute(),
            false => still_closing(),
        };
        self.go_back(&format!("is not executed: {error}"))
    }

    fn execute(&mut self) -> io::Error {
        let suspended = match self.suspend() {
            Ok(suspended) => suspended,
            Err(error) => return error,
        };
        let Some(upgrade) = &self.upgrade else {
            return ErrorKind::NotFound.into();
        };
        let machines = suspended.iter();
        let machines = machines.map(|(connection, proxy)| (&**connection, Some(&**proxy)));
        let (_ours, theirs) = match self.put(&upgrade.request, machines.collect()) {
            Ok(ends) => ends,
            Err(error) => {
                self.go_on_with(suspended);
                return error;
            }
        };
        drop((suspended, self.incoming.take_all()));
        let error = match wait_until_closed(Instant::now() + END_TIMEOUT) {
            true => execute(
                &upgrade.request,
                Role::ShareSupervisor,
                self.config.paths(),
                &theirs,
            ),
            false => still_closing(),
        };
        if let Err(error) = self.take_back(&theirs) {
            tracing::error!("virtual machines are disconnected: {error}");
        }
        error
    }

    /// Takes all connections away from their proxies; with an error, none.
    fn suspend(&mut self) -> io::Result<Vec<Suspended>> {
        let deadline = Instant::now() + FRONT_END_TIMEOUT;
        let mut suspended = Vec::new();
        while let Some(mut connection) = self.orphans.pop_front() {
            match connection.suspend(deadline) {
                Ok(proxy) => suspended.push((connection, Foreign::new(proxy))),
                // It has disconnected.
                Err(error) if error.kind() == ErrorKind::NotConnected => self.close(connection),
                Err(error) => {
                    self.orphans.push_front(connection);
                    self.go_on_with(suspended);
                    return Err(error);
                }
            }
        }
        Ok(suspended)
    }

    fn go_on_with(&mut self, suspended: Vec<Suspended>) {
        for (mut connection, proxy) in suspended {
            match connection.go_on(proxy.into_inner()) {
                Ok(()) => self.orphans.push_back(connection),
                Err(error) => {
                    tracing::error!("a virtual machine is disconnected: {error}");
                    self.close(connection);
                }
            }
        }
    }

    /// What was handed over, and is taken by no other program.
    fn take_back(&mut self, theirs: &OwnedFd) -> io::Result<()> {
        let (State::Share(state), mut files) = receive(theirs)? else {
            return Err(ErrorKind::InvalidData.into());
        };
        for stream in files.take_all(Slot::Incoming) {
            self.incoming.add(Foreign::new(stream));
        }
        let machines = connections_of(state.machines, &mut files, &self.config);
        self.orphans.extend(machines);
        Ok(())
    }

    /// Puts into a socket what the next program needs. With the states of their proxies, it gets all of the machines, also
    /// what they have sent.
    fn put(
        &self,
        command: &Request,
        machines: Vec<(&Connection, Option<&ProxyState>)>,
    ) -> io::Result<(OwnedFd, OwnedFd)> {
        let state_of = |(connection, proxy): &(&Connection, Option<&ProxyState>)| MachineState {
            proxy: proxy.map(|proxy| proxy.bytes.clone()).unwrap_or_default(),
            ..connection.state()
        };
        let state = ShareState {
            config: self.config.clone(),
            once: self.once,
            machines: machines.iter().map(state_of).collect(),
        };
        let mut files = Outgoing::default();
        files.add(Slot::Source, &self.source);
        self.listener.hand_over(&mut files);
        self.clients.hand_over(&mut files);
        if let Some(policy) = &self.policy {
            files.add(Slot::Policy, &policy.text);
            files.add_if(Slot::AuditLog, policy.audit.as_ref());
        }
        files.add(Slot::Command, command);
        let is_given = |(_, proxy): &(&Connection, Option<&ProxyState>)| proxy.is_some();
        if machines.iter().all(is_given) {
            for (number, incoming) in (0..).zip(self.incoming.all()) {
                files.add(Slot::Incoming(number), incoming);
            }
        }
        let stored: Vec<_> = machines
            .iter()
            .map(|(connection, proxy)| proxy.map(|_| connection.stored()))
            .collect();
        for ((connection, proxy), stored) in machines.iter().zip(&stored) {
            files.begin_machine();
            connection.hand_over(&mut files);
            let sent = proxy.map_or(&[][..], |proxy| &proxy.files);
            for (number, file) in (0..).zip(sent) {
                files.add(Slot::Proxy(number), file);
            }
            for (key, file) in stored.iter().flat_map(|stored| stored.iter()) {
                files.add(Slot::Stored(*key), file);
            }
        }
        put(&State::Share(Box::new(state)), &files)
    }

    /// Goes on as the supervisor that another program was, which this process was executed by.
    fn take_over(number: &OsStr) -> Result<ShareSupervisor, Box<dyn Error>> {
        // Before anything of a peer is open.
        let apart = Apart::start("thrufs-start")?;
        raise_descriptor_limit();
        let (State::Share(state), mut files) = receive(&inherited(number)?)? else {
            return Err("it was the supervisor of a mount".into());
        };
        let config = state.config;
        let (log, signals) = supervisor::begin_again(&config.server)?;
        let machines = Arc::new(Machines::new(&config));
        let mut incoming = AllIncoming::default();
        for stream in files.take_all(Slot::Incoming) {
            incoming.add(Foreign::new(stream));
        }
        let policy = files.take_if_given(Slot::Policy).map(|text| PolicyFiles {
            text,
            audit: files.take_if_given(Slot::AuditLog),
        });
        let mut supervisor = ShareSupervisor {
            source: files.take(Slot::Source)?,
            policy,
            log,
            apart,
            signals,
            listener: ShareListener::resume(&mut files)?,
            clients: ClientSockets::resume(&mut files, &machines)?,
            upgrade: None,
            proof: None,
            command: files.take_if_given(Slot::Command),
            machines,
            workers: Vec::new(),
            phase: StandbyState::Starting,
            orphans: connections_of(state.machines, &mut files, &config),
            incoming,
            turn: 0,
            closing: Vec::new(),
            started: Instant::now(),
            failures: 0,
            once: state.once,
            ends_on_hangup: supervisor::ends_on_hangup(),
            config,
        };
        supervisor.start_worker()?;
        Ok(supervisor)
    }

    /// Replies to the command, once no machine waits for a worker of this program.
    pub(super) fn reply_if_upgraded(&mut self) {
        if self.orphans.is_empty()
            && let Some(command) = self.command.take()
        {
            tracing::info!("upgraded: {} is served by another program", self.shown());
            request::finish(command);
        }
    }
}

fn still_closing() -> io::Error {
    io::Error::other("what a virtual machine monitor or a worker has sent takes long to close")
}

/// One that cannot go on is disconnected.
fn connections_of(
    machines: Vec<MachineState>,
    files: &mut Incoming,
    config: &ShareConfig,
) -> VecDeque<Foreign<Connection>> {
    let resumed = machines.into_iter().map(|machine| {
        let resumed = Connection::resume(machine, &mut files.next_machine(), config);
        resumed.inspect_err(|error| tracing::error!("a virtual machine is disconnected: {error}"))
    });
    resumed.filter_map(Result::ok).collect()
}

//! The supervisor of a share: holds the socket, and keeps a worker on standby.
//!
//! Its thread waits for nothing that a peer decides (`docs/security.md`): sockets of peers are closed
//! elsewhere ([`Foreign`]), sends do not wait ([`Channel`](crate::channel::Channel)), and processes are started
//! where no descriptor of a peer is open ([`Apart`]).
//!
//! A connection that sends nothing takes no worker. Messages of a front end are relayed to its worker and
//! recorded, not executed ([`Connection`]). Each front end has its own worker, up to `machines`; the next
//! waits at the socket. When a worker dies, the next one resumes its connection.

mod events;
pub(crate) mod upgrade;

use super::client_sockets::ClientSockets;
use super::connection::Connection;
use super::error::ShareError;
use super::figures::Machines;
use super::incoming::AllIncoming;
use super::listener::{ListenAddress, ShareListener};
use super::workers::{Proof, ShareWorker, StandbyState};
use crate::channel::{Notice, Order};
use crate::config::ShareConfig;
use crate::confinement::raise_descriptor_limit;
use crate::control::reload::{Outcome, Reloaded};
use crate::control::socket::file_name_of_share;
use crate::error::{StartupError, system};
use crate::foreign::Foreign;
use crate::log::{self, Log};
use crate::output::{now, report, report_of};
use crate::policy_file::{PolicyFiles, not_reloaded};
use crate::supervisor::{self, signal_name};
use crate::systemd;
use crate::task::Task;
use crate::upgrade::check::Upgrade;
use crate::upgrade::request::Request;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thrufs_hostdir::{CacheMode, Locks};
use thrufs_sys::apart::Apart;
use thrufs_sys::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SignalFd};

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// For a worker to exit after its last requests, or after its last thread.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Most failures of standby workers in a row, while none serves.
const FAILURES_MAX: u32 = 3;

/// A standby worker that lasted this long is not a failure.
const LASTING: Duration = Duration::from_secs(60);

/// Pause after a failed accept(2): no descriptors, no memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Whether the share continues after an event. The third outcome is an error.
type Then = ControlFlow<()>;

/// Workers are given by their index, which is valid until the next event.
#[derive(Debug)]
enum ShareEvent {
    Signal(i32),
    Worker(usize, Notice),
    WorkerEnded(usize),
    /// Its exit deadline has passed.
    WorkerStuck(usize),
    /// A front end connects.
    Connecting,
    /// One that has connected has sent something, or has disconnected.
    Incoming(usize),
    /// All that a peer has sent is closed.
    Closed,
    /// Another program is to go on.
    Upgrade(Request),
    /// It has answered whether it can.
    Checked,
    /// A worker of it has received all that a front end has set.
    Served,
    /// A client of the control socket asks for it.
    Reload,
    Deadline,
}

struct ShareSupervisor {
    config: ShareConfig,
    source: OwnedFd,
    policy: Option<PolicyFiles>,
    log: Log,
    /// Starts processes.
    apart: Apart,
    signals: SignalFd,
    listener: ShareListener,
    clients: ClientSockets,
    upgrade: Option<Upgrade>,
    /// While a worker of another program shows that it serves.
    proof: Option<Proof>,
    /// Where to reply once this program serves, after an upgrade to it.
    command: Option<OwnedFd>,
    machines: Arc<Machines>,
    /// Those that serve a machine, and the one on standby.
    workers: Vec<Foreign<ShareWorker>>,
    phase: StandbyState,
    /// Connections whose worker has died, for the next worker.
    orphans: VecDeque<Foreign<Connection>>,
    incoming: AllIncoming,
    /// Which of the connections is looked at first.
    turn: usize,
    /// What peers have sent is being closed. Each takes the place of a machine.
    closing: Vec<Task<()>>,
    /// Start of the standby worker.
    started: Instant,
    /// Failures of standby workers in a row.
    failures: u32,
    once: bool,
    ends_on_hangup: bool,
}

pub(super) fn run(
    config: ShareConfig,
    source: OwnedFd,
    policy: Option<PolicyFiles>,
    listening: &ListenAddress,
    once: bool,
) -> Result<(), ShareError> {
    let mut supervisor = ShareSupervisor::start(config, source, policy, listening, once)?;
    if supervisor.wait_until_ready()? == Then::Break(()) {
        return Ok(());
    }
    supervisor.announce()?;
    supervisor.serve()
}

impl ShareSupervisor {
    fn start(
        config: ShareConfig,
        source: OwnedFd,
        policy: Option<PolicyFiles>,
        listening: &ListenAddress,
        once: bool,
    ) -> Result<ShareSupervisor, ShareError> {
        let (log, signals) = supervisor::begin(&config.server)?;
        // Before anything of a peer is open.
        let apart = Apart::start("thrufs-start").map_err(system("start a thread"))?;
        // Held for workers: the guest's memory, locks.
        raise_descriptor_limit();
        let listener = ShareListener::open(listening)?;
        let machines = Arc::new(Machines::new(&config));
        let clients = ClientSockets::open(&config.server, &machines)?;
        let mut supervisor = ShareSupervisor {
            config,
            source,
            policy,
            log,
            apart,
            signals,
            listener,
            clients,
            upgrade: None,
            proof: None,
            command: None,
            machines,
            workers: Vec::new(),
            phase: StandbyState::Starting,
            orphans: VecDeque::new(),
            incoming: AllIncoming::default(),
            turn: 0,
            closing: Vec::new(),
            started: Instant::now(),
            failures: 0,
            once,
            ends_on_hangup: supervisor::ends_on_hangup(),
        };
        supervisor.start_worker()?;
        Ok(supervisor)
    }

    /// Waits until the first worker is ready. Its failure is the share's.
    fn wait_until_ready(&mut self) -> Result<Then, ShareError> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match self.next_event(Some(deadline)) {
                ShareEvent::Worker(_, Notice::Ready) => {
                    self.phase = StandbyState::Ready;
                    return Ok(Then::Continue(()));
                }
                ShareEvent::Worker(_, Notice::Failed(why)) => {
                    self.end_by_force();
                    return Err(ShareError::Worker(why));
                }
                ShareEvent::Signal(SIGHUP) if !self.ends_on_hangup => {}
                ShareEvent::Signal(number @ (SIGTERM | SIGINT | SIGHUP)) => {
                    return self.stop(number);
                }
                ShareEvent::WorkerEnded(_) | ShareEvent::WorkerStuck(_) | ShareEvent::Deadline => {
                    self.end_by_force();
                    return Err(ShareError::WorkerGone);
                }
                _ => {}
            }
        }
    }

    /// Publishes the sockets, and notifies systemd.
    fn announce(&mut self) -> Result<(), ShareError> {
        self.listener.publish()?;
        let usual = self.listener.identity();
        let usual = usual.map(|(device, inode)| file_name_of_share(device, inode));
        // An inherited socket has no file to name the control socket after.
        let usual = usual.unwrap_or_else(|| format!("share-{}.socket", std::process::id()));
        self.clients.publish(&usual);
        let (source, socket) = (self.config.source.display(), self.config.socket.display());
        let locks = match self.config.serving.locks {
            Locks::Local => "of each virtual machine alone (locks=local)",
            Locks::Shared => "shared with the host (locks=shared)",
        };
        tracing::info!("sharing {source} at {socket}, locks are {locks}");
        if self.config.serving.locks == Locks::Shared
            && self.config.serving.cache != CacheMode::Never
        {
            tracing::warn!(
                "virtual machines keep names and other files for up to a second under a lock: a database \
                 that is open elsewhere needs cache=never,allow_mmap"
            );
        }
        self.report_as_virtiofsd("Waiting for vhost-user socket connection...");
        systemd::notify_ready();
        log::limit();
        Ok(())
    }

    /// A line of virtiofsd's log, at any log level: Kata Containers waits for it.
    fn report_as_virtiofsd(&self, what: &str) {
        if self.once {
            report(format_args!("[{} INFO  virtiofsd] {what}", now()));
        }
    }

    fn serve(&mut self) -> Result<(), ShareError> {
        loop {
            let deadlines = self.incoming.deadline().into_iter();
            let deadlines = deadlines.chain(self.start_deadline());
            let deadline = deadlines.chain(self.proof_deadline()).min();
            let event = self.next_event(deadline);
            if self.on_event(event)? == Then::Break(()) {
                return Ok(());
            }
        }
    }

    fn on_event(&mut self, event: ShareEvent) -> Result<Then, ShareError> {
        match event {
            ShareEvent::Signal(SIGUSR1) => self.print_statistics(),
            ShareEvent::Signal(SIGHUP) if !self.ends_on_hangup => drop(self.reload()),
            ShareEvent::Reload => {
                let outcome = self.reload();
                self.clients.reply_to_reload(outcome);
            }
            ShareEvent::Signal(number) => {
                return self.stop(number);
            }
            ShareEvent::Connecting => self.accept(),
            ShareEvent::Incoming(index) => self.on_incoming(index)?,
            ShareEvent::Closed if self.phase == StandbyState::Full => self.start_standby()?,
            ShareEvent::Closed => {}
            ShareEvent::Deadline => self.on_deadline()?,
            ShareEvent::Upgrade(request) => self.begin_upgrade(request),
            ShareEvent::Checked => self.on_checked()?,
            ShareEvent::Served => self.on_served()?,
            ShareEvent::Worker(index, message) => return self.on_message(index, message),
            ShareEvent::WorkerEnded(index) => {
                let mut worker = self.workers.swap_remove(index);
                let status = worker.process.wait();
                let status = status.map_err(system("wait for the worker"))?;
                return match self.is_proving(&worker) {
                    true => self.on_proof_ended(worker, status),
                    false => self.after_end(worker, Some(status)),
                };
            }
            ShareEvent::WorkerStuck(index) => {
                let worker = self.workers.swap_remove(index);
                let process = worker.process.id();
                tracing::error!(
                    "requests do not end, because the source does not answer: process {process} \
                     stays until it does"
                );
                return self.after_end(worker, None);
            }
        }
        Ok(Then::Continue(()))
    }

    /// By when the standby worker must be ready; `None` once it was killed.
    fn start_deadline(&mut self) -> Option<Instant> {
        let deadline = self.started + START_TIMEOUT;
        let is_starting = self.phase == StandbyState::Starting
            && self.standby()?.process.end_deadline().is_none();
        is_starting.then_some(deadline)
    }

    /// A front end is silent, or the standby worker does not get ready.
    fn on_deadline(&mut self) -> Result<(), ShareError> {
        for silent in self.incoming.take_silent() {
            tracing::warn!("the front end sends nothing: disconnecting it");
            self.close(silent.stream);
        }
        let is_late = |deadline| deadline <= Instant::now();
        if self.start_deadline().is_some_and(is_late)
            && let Some(worker) = self.standby()
        {
            worker.process.kill();
            worker.process.begin_to_end(END_TIMEOUT);
        }
        match self.proof_deadline().is_some_and(is_late) {
            true => self.go_back("does not serve in time"),
            false => Ok(()),
        }
    }

    fn standby(&mut self) -> Option<&mut ShareWorker> {
        let mut workers = self.workers.iter_mut().map(|worker| &mut **worker);
        workers.find(|worker| worker.connection.is_none())
    }

    fn close<T: Send>(&mut self, value: Foreign<T>) {
        self.closing.extend(value.close());
    }

    /// The number of workers that serve.
    fn serving(&self) -> usize {
        let workers = self.workers.iter();
        workers.filter(|it| it.connection.is_some()).count()
    }

    fn on_message(&mut self, index: usize, message: Notice) -> Result<Then, ShareError> {
        let worker = &mut self.workers[index];
        let is_standby = worker.connection.is_none();
        match message {
            // It serves the next connection: one that is resumed, or one that has connected.
            Notice::Ready if is_standby && self.proof.is_some() => self.on_proving_ready()?,
            Notice::Ready if is_standby => {
                self.phase = StandbyState::Ready;
                self.resume_orphans()?;
                self.reply_if_upgraded();
            }
            Notice::Signalled(number) if is_standby => {
                return self.stop(number);
            }
            // A signal to one worker ends only its connection.
            Notice::Signalled(_) => worker.process.tell(&Order::Stop),
            Notice::Failed(why) => worker.exit_reason = Some(why),
            Notice::Figures(figures) if !is_standby => self.machines.record_exit(&figures),
            message => tracing::debug!(?message, "unexpected message from a worker"),
        }
        Ok(Then::Continue(()))
    }

    fn accept(&mut self) {
        match self.listener.accept() {
            Ok(Some(stream)) => {
                tracing::debug!("a connection is accepted");
                if let Some(replaced) = self.incoming.add(stream) {
                    self.close(replaced.stream);
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!("cannot accept a front end: {error}");
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }

    /// Gives a front end that has sent its first message to the standby worker, and starts the next.
    fn on_incoming(&mut self, index: usize) -> Result<(), ShareError> {
        let has_begun = self.incoming.all()[index].has_begun();
        let stream = self.incoming.take(index).stream;
        if !has_begun {
            self.close(stream);
            return Ok(());
        }
        tracing::info!("a virtual machine has connected");
        match Connection::begin(&stream, &self.config) {
            Ok(connection) => {
                self.report_as_virtiofsd("Client connected, servicing requests");
                self.assign(connection)
            }
            Err(error) => {
                tracing::warn!("cannot serve the front end: {error}");
                Ok(())
            }
        }
    }

    /// Gives a connection to the standby worker, and starts the next.
    fn assign(&mut self, connection: Foreign<Connection>) -> Result<(), ShareError> {
        self.give(connection);
        self.start_standby()
    }

    /// Gives a connection to the standby worker, of which there is one.
    fn give(&mut self, connection: Foreign<Connection>) {
        let Some(worker) = self.standby() else {
            return;
        };
        worker.process.is_exposed = true;
        let process = worker.process.id();
        tracing::debug!(process, "the worker serves a virtual machine");
        // The exit of a dead worker is the next event.
        if let Err(error) = connection.hand_to(&worker.process.channel) {
            tracing::debug!("cannot send to the worker: {error}");
        }
        worker.connection = Some(connection);
        let queries = Arc::clone(&worker.queries);
        self.machines.add(process, queries);
    }

    /// Resumes a connection whose worker has died, if any.
    fn resume_orphans(&mut self) -> Result<(), ShareError> {
        match self.phase {
            _ if self.orphans.is_empty() => Ok(()),
            // They are resumed after it, by whichever program.
            _ if self.proof.is_some() => Ok(()),
            StandbyState::Ready => {
                tracing::info!("resuming the virtual machine");
                let next = self.orphans.pop_front();
                next.map_or(Ok(()), |connection| self.assign(connection))
            }
            StandbyState::Full => self.start_standby(),
            // The worker that is starting resumes it.
            StandbyState::Starting => Ok(()),
        }
    }

    /// Starts the next standby worker, unless the limit is reached.
    fn start_standby(&mut self) -> Result<(), ShareError> {
        let taken = self.serving() + self.closing.len();
        let enough = self.once || taken >= self.config.machines_max;
        if enough && self.orphans.is_empty() {
            self.phase = StandbyState::Full;
            return Ok(());
        }
        match self.start_worker() {
            Ok(()) => {}
            // The serving workers continue.
            Err(error) if self.serving() > 0 => {
                tracing::error!("no further virtual machine can connect for now: {error}");
                self.orphans.clear();
                self.phase = StandbyState::Full;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn start_worker(&mut self) -> Result<(), StartupError> {
        self.phase = StandbyState::Starting;
        self.started = Instant::now();
        let (program, policy) = (self.program(), self.policy.as_ref());
        let (apart, config) = (&mut self.apart, &self.config);
        let started = ShareWorker::start(apart, &program, config, policy, &self.source)?;
        self.workers.push(started);
        Ok(())
    }

    /// Keeps the connection of an ended worker, if the next one resumes it; otherwise closes it.
    fn will_resume(
        &mut self,
        mut connection: Foreign<Connection>,
        status: Option<ExitStatus>,
    ) -> bool {
        match status.map_or(Err(None), |status| connection.outlives(status)) {
            Ok(()) => {
                let deaths = connection.deaths();
                tracing::error!(
                    deaths,
                    "the worker died ({}): the next worker resumes the virtual machine",
                    shown(status)
                );
                self.orphans.push_back(connection);
                true
            }
            Err(why) => {
                if let Some(why) = why {
                    tracing::error!("the virtual machine is not resumed: {why}");
                }
                self.close(connection);
                false
            }
        }
    }

    /// `status` is `None` if the process remains, because its requests do not end.
    fn after_end(
        &mut self,
        mut worker: Foreign<ShareWorker>,
        status: Option<ExitStatus>,
    ) -> Result<Then, ShareError> {
        let (connection, why) = (worker.connection.take(), worker.exit_reason.take());
        let process = worker.process.id();
        self.close(worker);
        match connection {
            Some(connection) => self.after_serving(process, connection, why, status),
            None => self.after_standby(why, status).map(|()| Then::Continue(())),
        }
    }

    /// The next worker resumes the connection, or the machine is disconnected.
    fn after_serving(
        &mut self,
        process: u32,
        connection: Foreign<Connection>,
        exit_reason: Option<String>,
        status: Option<ExitStatus>,
    ) -> Result<Then, ShareError> {
        self.failures = 0;
        if self.will_resume(connection, status) {
            self.machines.remove(process, true);
            self.resume_orphans()?;
            return Ok(Then::Continue(()));
        }
        let outcome = match exit_reason {
            _ if status.is_some_and(|status| status.success()) => {
                tracing::info!(process, "the virtual machine has disconnected");
                Ok(Then::Break(()))
            }
            Some(why) => {
                tracing::error!(process, "the virtual machine was disconnected: {why}");
                Err(ShareError::Worker(why))
            }
            None => {
                let end = shown(status);
                tracing::error!(
                    process,
                    "the worker died ({end}): the virtual machine was disconnected"
                );
                Err(ShareError::WorkerDied(end))
            }
        };
        self.machines.remove(process, false);
        if self.once {
            return outcome;
        }
        // At the limit there is no standby worker.
        if self.phase == StandbyState::Full && self.proof.is_none() {
            self.start_standby()?;
        }
        Ok(Then::Continue(()))
    }

    /// The next worker starts, unless they fail in a row.
    fn after_standby(
        &mut self,
        exit_reason: Option<String>,
        status: Option<ExitStatus>,
    ) -> Result<(), ShareError> {
        tracing::error!("the standby worker died ({})", shown(status));
        // It was to resume this connection, which may have killed it.
        if let Some(connection) = self.orphans.pop_front()
            && self.will_resume(connection, status)
        {
            return self.start_standby();
        }
        if self.started.elapsed() >= LASTING {
            self.failures = 0;
        } else {
            self.failures += 1;
        }
        if self.failures < FAILURES_MAX || !self.orphans.is_empty() {
            return self.start_standby();
        }
        let died = || ShareError::WorkerDied(shown(status));
        let error = exit_reason.map_or_else(died, ShareError::Worker);
        if self.serving() == 0 {
            return Err(error);
        }
        // The serving workers continue; when one ends, another start is tried.
        tracing::error!("no further virtual machine can connect for now: {error}");
        self.phase = StandbyState::Full;
        Ok(())
    }

    /// Requested explicitly, so independent of log levels.
    fn print_statistics(&self) {
        report_of(&self.config.socket, &self.machines.heading());
        self.send_all(&Order::Statistics);
    }

    fn send_all(&self, message: &Order) {
        for worker in &self.workers {
            worker.process.tell(message);
        }
    }

    /// Opens the log file again, and reloads the policy. A bad one changes nothing.
    fn reload(&mut self) -> Outcome {
        let log_file = self.log.reopen(&self.config.server);
        Reloaded::of(log_file, self.reload_policy().map_err(not_reloaded))
    }

    /// Returns whether there is one.
    fn reload_policy(&mut self) -> Result<bool, StartupError> {
        let Some(path) = &self.config.server.policy else {
            return Ok(false);
        };
        let policy = PolicyFiles::open(path, &self.config.serving)?;
        // All or none.
        let messages = self.workers.iter().map(|_| policy.for_worker());
        let messages: Vec<_> = messages.collect::<Result<_, _>>()?;
        for (worker, message) in self.workers.iter().zip(messages) {
            worker.process.tell(&message);
        }
        // What was granted under the old policy is in the session record; all else is decided by this one.
        self.policy = Some(policy);
        Ok(true)
    }

    /// Ends because of a signal: the workers answer the requests in progress and disconnect. A second
    /// signal does not wait.
    fn stop(&mut self, signal: i32) -> Result<Then, ShareError> {
        tracing::info!("{}: ending", signal_name(signal));
        self.finish_upgrade(Err("the share ends".to_owned()));
        self.phase = StandbyState::Full;
        self.send_all(&Order::Stop);
        let deadline = Instant::now() + self.config.server.stop_timeout + END_TIMEOUT;
        while !self.workers.is_empty() {
            match self.next_event(Some(deadline)) {
                ShareEvent::WorkerEnded(index) => {
                    let _ = self.workers.swap_remove(index).process.wait();
                }
                ShareEvent::Signal(SIGTERM | SIGINT) => {
                    tracing::warn!("second signal: killing the workers");
                    break;
                }
                ShareEvent::Deadline | ShareEvent::WorkerStuck(_) => {
                    tracing::warn!("a worker does not end: killing it");
                    break;
                }
                _ => {}
            }
        }
        self.end_by_force().map_or(Ok(Then::Break(())), |stuck| {
            Err(ShareError::WorkerStuck(stuck))
        })
    }

    /// Kills the remaining workers; returns one that does not end.
    fn end_by_force(&mut self) -> Option<u32> {
        self.kill();
        let deadline = Instant::now() + END_TIMEOUT;
        let mut stuck = None;
        for worker in &mut self.workers {
            let left = deadline.saturating_duration_since(Instant::now());
            if worker.process.has_ended_within(left) {
                let _ = worker.process.wait();
            } else {
                stuck = Some(worker.process.id());
            }
        }
        stuck
    }

    fn kill(&self) {
        for worker in &self.workers {
            worker.process.kill();
        }
    }
}

/// How a worker has ended.
fn shown(status: Option<ExitStatus>) -> String {
    status.map_or_else(|| "stuck".to_owned(), |status| status.to_string())
}

impl Drop for ShareSupervisor {
    fn drop(&mut self) {
        // The workers must not outlive this process.
        self.kill();
    }
}

//! The supervisor of a share: holds the socket, and has a worker ready for who connects.
//!
//! Who only looks whether somebody listens takes up no worker. What a front end says is passed on to its
//! worker and kept, not carried out ([`Keeping`]). As many front ends as are allowed are served at once,
//! each by a worker of its own; the next waits at the socket until one has gone. When a worker dies,
//! another goes on with its connection.

use super::crew::{Crew, Who, Worker};
use super::door::{Door, Listening};
use super::events::Event;
use super::figures::Machines;
use super::keeping::Keeping;
use crate::channel::Message;
use crate::config::ShareConfig;
use crate::confinement::raise_descriptor_limit;
use crate::control::place::{ControlSocket, file_name_of_share};
use crate::control::server::Server;
use crate::error::{CommandError, system};
use crate::log::Log;
use crate::policy_file::PolicyFiles;
use crate::supervisor::signal_name;
use crate::systemd;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thrufs_sys::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SignalFd};

/// How long a worker may take to be ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long somebody who was let in may say nothing.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a worker has to end after its last requests, which are waited for before.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Most workers in a row that end without having served anybody, before it is given up, if nobody is served.
const FAILURES_MAX: u32 = 3;

/// A worker that has waited for so long was no failure, whatever ended it.
const LASTING: Duration = Duration::from_secs(60);

/// How long to leave a socket alone that nobody can be let in by: no descriptors, no memory.
const LET_IN_PAUSE: Duration = Duration::from_millis(100);

/// What the worker is about that serves nobody yet.
#[derive(Debug)]
pub(super) enum Phase {
    /// It is being started.
    Starting,
    /// It waits for somebody to connect.
    Ready,
    /// Somebody is connected, since then, and has not spoken.
    LetIn(OwnedFd, Instant),
    /// There is none: as many serve as may.
    Full,
    /// All were told to end, and nobody is let in any more.
    Ending,
}

/// A share.
pub(super) struct Supervisor {
    pub(super) config: ShareConfig,
    source: OwnedFd,
    /// By which all workers serve.
    policy: Option<PolicyFiles>,
    /// Keeps the file open that the log goes to.
    _log: Log,
    pub(super) signals: SignalFd,
    pub(super) door: Door,
    control: Option<ControlSocket>,
    machines: Arc<Machines>,
    pub(super) crew: Crew,
    pub(super) phase: Phase,
    /// Connections whose worker has died, for the next that is ready.
    orphans: VecDeque<Keeping>,
    /// The worker that serves nobody yet.
    started: Instant,
    /// Workers in a row that have served nobody.
    failures: u32,
    /// End when the first front end disconnects.
    once: bool,
}

/// Serves `source` until the end.
///
/// # Errors
///
/// Why it could not be served, or why it ended otherwise than by a signal or, with `once`, with its
/// front end.
pub(super) fn run(
    config: ShareConfig,
    source: OwnedFd,
    listening: &Listening,
    once: bool,
) -> Result<(), CommandError> {
    let mut supervisor = Supervisor::start(config, source, listening, once)?;
    if let Some(end) = supervisor.wait_until_ready()? {
        return end;
    }
    supervisor.announce()?;
    supervisor.serve()
}

impl Supervisor {
    fn start(
        config: ShareConfig,
        source: OwnedFd,
        listening: &Listening,
        once: bool,
    ) -> Result<Supervisor, CommandError> {
        let log = Log::begin(&config.server)?;
        let _ = rustix::thread::set_name(c"thrufs");
        // Whatever the working directory was, it must not keep a mount busy.
        std::env::set_current_dir("/").map_err(system("change to /"))?;
        // What is kept for workers, the guest's memory and locks, may be many.
        raise_descriptor_limit();
        let signals = SignalFd::block_and_open(&[SIGTERM, SIGINT, SIGHUP, SIGUSR1])
            .map_err(system("receive signals"))?;
        let door = Door::open(listening)?;
        let control = ControlSocket::make_if_possible(&config.server.control)?;
        let machines = Arc::new(Machines::new(config.socket.clone()));
        let (control, listener) = control.unzip();
        if let Some(listener) = listener {
            let asked = Arc::clone(&machines);
            Server::start(listener, || {}, move |command| asked.answer(command))
                .map_err(system("listen at the control socket"))?;
        }
        let policy = config.server.policy.as_ref();
        let policy = policy.map(|path| PolicyFiles::open(path, &config.serving));
        let policy = policy.transpose()?;
        let crew = Crew::new(Worker::start(&config, policy.as_ref(), &source)?);
        Ok(Supervisor {
            config,
            source,
            policy,
            _log: log,
            signals,
            door,
            control,
            machines,
            crew,
            phase: Phase::Starting,
            orphans: VecDeque::new(),
            started: Instant::now(),
            failures: 0,
            once,
        })
    }

    /// Waits until the first worker is ready. What is wrong with it is wrong with the share.
    fn wait_until_ready(&mut self) -> Result<Option<Result<(), CommandError>>, CommandError> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match self.next_event(Some(deadline)) {
                Event::Worker(_, Message::Ready) => {
                    self.phase = Phase::Ready;
                    return Ok(None);
                }
                Event::Worker(_, Message::Failed(why)) => {
                    self.end_by_force();
                    return Err(CommandError::Server(why));
                }
                Event::Signal(number @ (SIGTERM | SIGINT | SIGHUP)) => {
                    return Ok(Some(self.stop(number)));
                }
                Event::WorkerEnded(_) | Event::WorkerStuck(_) | Event::Deadline => {
                    self.end_by_force();
                    return Err(CommandError::WorkerGone);
                }
                _ => {}
            }
        }
    }

    /// Lets the sockets be found, and tells who waits for that.
    fn announce(&mut self) -> Result<(), CommandError> {
        self.door.publish()?;
        if let Some(control) = &mut self.control {
            let usual = self.door.identity();
            let usual = usual.map(|(device, inode)| file_name_of_share(device, inode));
            // Without a file nobody could ask for it by its name.
            let usual = usual.unwrap_or_else(|| format!("share-{}.socket", std::process::id()));
            if let Err(error) = control.publish(usual) {
                tracing::warn!("no control socket: {error}");
            }
        }
        let (source, socket) = (self.config.source.display(), self.config.socket.display());
        tracing::info!("sharing {source} at {socket}");
        systemd::notify_ready();
        Ok(())
    }

    /// Serves who connects.
    fn serve(&mut self) -> Result<(), CommandError> {
        loop {
            let deadline = match &self.phase {
                Phase::Starting => Some(self.started + START_TIMEOUT),
                Phase::LetIn(_, since) => Some(*since + SILENCE_TIMEOUT),
                Phase::Ready | Phase::Full | Phase::Ending => None,
            };
            match self.next_event(deadline) {
                Event::Signal(SIGUSR1) => self.print_statistics(),
                Event::Signal(SIGHUP) if !self.config.server.ends_on_hangup() => self.reload(),
                Event::Signal(number) | Event::Worker(Who::Waiting, Message::Signalled(number)) => {
                    return self.stop(number);
                }
                Event::Knock => self.let_in(),
                Event::Speaks => {
                    if let Some(end) = self.hand_over() {
                        return end;
                    }
                }
                Event::Gone => self.phase = Phase::Ready,
                Event::Deadline if matches!(self.phase, Phase::LetIn(..)) => {
                    tracing::warn!("the front end sends nothing: disconnecting it");
                    self.phase = Phase::Ready;
                }
                Event::Deadline => {
                    if let Some(worker) = self.crew.get(Who::Waiting) {
                        worker.process.kill();
                    }
                }
                Event::Worker(Who::Waiting, Message::Ready) => {
                    self.phase = Phase::Ready;
                    if let Some(end) = self.take_care_of_orphans() {
                        return end;
                    }
                }
                Event::Worker(who, message) => self.on_message(who, message),
                Event::WorkerEnded(who) => {
                    let Some(mut worker) = self.crew.take(who) else {
                        continue;
                    };
                    let status = worker.process.wait();
                    let status = status.map_err(system("wait for the worker"))?;
                    if let Some(end) = self.after(who, worker, Some(status)) {
                        return end;
                    }
                }
                Event::WorkerStuck(who) => {
                    let Some(worker) = self.crew.take(who) else {
                        continue;
                    };
                    let process = worker.process.id();
                    tracing::error!(
                        "requests do not end, because the source does not answer: process {process} \
                         stays until it does"
                    );
                    if let Some(end) = self.after(who, worker, None) {
                        return end;
                    }
                }
            }
        }
    }

    fn on_message(&mut self, who: Who, message: Message) {
        match (who, message) {
            (_, Message::Failed(why)) => {
                if let Some(worker) = self.crew.get_mut(who) {
                    worker.last_words = Some(why);
                }
            }
            (Who::Serving(_), Message::Figures(figures)) => self.machines.last_words(&figures),
            // Of this one alone: others have nothing to do with it.
            (Who::Serving(_), Message::Signalled(_)) => {
                if let Some(worker) = self.crew.get(who) {
                    let _ = worker.process.channel.send(&Message::Stop);
                }
            }
            (_, message) => tracing::debug!(?message, "unexpected message from a worker"),
        }
    }

    fn let_in(&mut self) {
        match self.door.let_in() {
            Ok(Some(stream)) => self.phase = Phase::LetIn(stream, Instant::now()),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!("cannot accept a front end: {error}");
                std::thread::sleep(LET_IN_PAUSE);
            }
        }
    }

    /// Gives who was let in to the worker that waits, and has another one wait.
    fn hand_over(&mut self) -> Option<Result<(), CommandError>> {
        let phase = std::mem::replace(&mut self.phase, Phase::Full);
        let Phase::LetIn(stream, _) = phase else {
            return None;
        };
        tracing::info!("a virtual machine has connected");
        match Keeping::begin(stream, &self.config) {
            Ok(kept) => self.give(kept),
            Err(error) => {
                tracing::warn!("cannot serve the front end: {error}");
                self.phase = Phase::Ready;
                None
            }
        }
    }

    /// Gives a connection to the worker that waits, and has another one wait.
    fn give(&mut self, kept: Keeping) -> Option<Result<(), CommandError>> {
        let worker = self.crew.begin()?;
        let process = worker.process.id();
        tracing::debug!(process, "the worker serves a virtual machine");
        // One that has died is seen next.
        if let Err(error) = kept.hand_to(&worker.process.channel) {
            tracing::debug!("cannot send to the worker: {error}");
        }
        worker.kept = Some(kept);
        let questions = Arc::clone(&worker.questions);
        self.machines.add(process, questions);
        self.have_one_wait()
    }

    /// Has the worker that waits go on with a connection whose worker has died, if there is one.
    fn take_care_of_orphans(&mut self) -> Option<Result<(), CommandError>> {
        if self.orphans.is_empty() {
            return None;
        }
        match self.phase {
            Phase::Ready => {
                let kept = self.orphans.pop_front()?;
                tracing::info!("resuming the virtual machine");
                self.give(kept)
            }
            Phase::Full => self.have_one_wait(),
            // It will be ready, or serve who was let in, and the next one is for them.
            Phase::Starting | Phase::LetIn(..) | Phase::Ending => None,
        }
    }

    /// Starts the worker that will serve the next one, if there may be a next one.
    fn have_one_wait(&mut self) -> Option<Result<(), CommandError>> {
        let enough = self.once || self.crew.serving() >= self.config.machines_max;
        if enough && self.orphans.is_empty() {
            self.phase = Phase::Full;
            return None;
        }
        self.phase = Phase::Starting;
        self.started = Instant::now();
        match Worker::start(&self.config, self.policy.as_ref(), &self.source) {
            Ok(worker) => {
                self.crew.wait(worker);
                None
            }
            // Those that are served need not end for it.
            Err(error) if self.crew.serving() > 0 => {
                tracing::error!("no further virtual machine can connect for now: {error}");
                self.orphans.clear();
                self.phase = Phase::Full;
                None
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Keeps the connection of a worker that has ended like this, if another is to go on with it.
    fn goes_on(&mut self, worker: &mut Worker, status: Option<ExitStatus>) -> bool {
        let Some((status, mut kept)) = status.zip(worker.kept.take()) else {
            return false;
        };
        match kept.outlives(status) {
            Ok(()) => {
                let deaths = kept.deaths();
                tracing::error!(
                    deaths,
                    "the worker died ({status}): the next worker resumes the virtual machine"
                );
                self.orphans.push_back(kept);
                true
            }
            Err(why) => {
                if let Some(why) = why {
                    tracing::error!("the virtual machine is not resumed: {why}");
                }
                false
            }
        }
    }

    /// What comes after a worker that has ended, or does not: the next one, or the end.
    fn after(
        &mut self,
        who: Who,
        mut worker: Worker,
        status: Option<ExitStatus>,
    ) -> Option<Result<(), CommandError>> {
        let served = who != Who::Waiting;
        let process = worker.process.id();
        if served {
            self.failures = 0;
        }
        // Unless it is kept, its connection ends here.
        if self.goes_on(&mut worker, status) {
            self.machines.forget(process);
            return self.take_care_of_orphans();
        }
        let shown = status.map_or("stuck".to_owned(), |status| status.to_string());
        let well = status.is_some_and(|status| status.success());
        let last_words = worker.last_words.take();
        match (served, well, &last_words) {
            (true, true, _) => tracing::info!(process, "the virtual machine has disconnected"),
            (true, false, Some(why)) => {
                tracing::error!(process, "the virtual machine was disconnected: {why}");
            }
            (true, false, None) => {
                tracing::error!(
                    process,
                    "the worker died ({shown}): the virtual machine was disconnected"
                );
            }
            (false, ..) => {
                tracing::error!("the standby worker died ({shown})");
            }
        }
        let failed = || last_words.map_or(CommandError::WorkerDied(shown), CommandError::Server);
        if served {
            self.machines.remove(process);
            if self.once {
                return Some(if well { Ok(()) } else { Err(failed()) });
            }
            // Nobody waits when as many served as may.
            return match self.phase {
                Phase::Full => self.have_one_wait(),
                _ => None,
            };
        }
        if let Some(kept) = self.orphans.pop_front() {
            // It was to go on with that, and died of it for all that is known.
            worker.kept = Some(kept);
            if self.goes_on(&mut worker, status) {
                return self.have_one_wait();
            }
        }
        if self.started.elapsed() >= LASTING {
            self.failures = 0;
        } else {
            self.failures += 1;
        }
        if self.failures >= FAILURES_MAX && self.orphans.is_empty() {
            if self.crew.serving() == 0 {
                return Some(Err(failed()));
            }
            // Those that are served need not end for it; when one has, another is tried.
            tracing::error!(
                "no further virtual machine can connect for now: {}",
                failed()
            );
            self.phase = Phase::Full;
            return None;
        }
        // Whoever was let in and has not spoken is let go: it can connect again.
        self.have_one_wait()
    }

    /// Asked for in so many words, so it is no matter of log levels.
    fn print_statistics(&self) {
        eprint!("{}", self.machines.heading());
        self.crew.tell(&Message::Statistics);
    }

    /// Has the policy read again. A bad one changes nothing.
    fn reload(&mut self) {
        let Some(path) = &self.config.server.policy else {
            return;
        };
        let read = PolicyFiles::open(path, &self.config.serving).and_then(|policy| {
            let told = self.crew.tell_policy(&policy);
            told.map_err(system("start the audit log")).map(|()| policy)
        });
        match read {
            Ok(policy) => {
                // Of a predecessor's files, a successor knows what was granted; of all else it asks this.
                self.policy = Some(policy);
            }
            Err(error) => tracing::error!("policy not reloaded, the active one stays: {error}"),
        }
    }

    /// Ends because of a signal: the workers answer what they were asked, and whoever is connected is
    /// disconnected. A second signal does not wait.
    fn stop(&mut self, signal: i32) -> Result<(), CommandError> {
        tracing::info!("{}: ending", signal_name(signal));
        self.phase = Phase::Ending;
        self.crew.tell(&Message::Stop);
        let deadline = Instant::now() + self.config.server.stop_timeout + END_TIMEOUT;
        while !self.crew.everybody().is_empty() {
            match self.next_event(Some(deadline)) {
                Event::WorkerEnded(who) => {
                    if let Some(mut worker) = self.crew.take(who) {
                        let _ = worker.process.wait();
                    }
                }
                Event::Signal(SIGTERM | SIGINT) => {
                    tracing::warn!("second signal: killing the workers");
                    break;
                }
                Event::Deadline | Event::WorkerStuck(_) => {
                    tracing::warn!("a worker does not end: killing it");
                    break;
                }
                _ => {}
            }
        }
        self.end_by_force()
            .map_or(Ok(()), |stuck| Err(CommandError::WorkerStuck(stuck)))
    }

    /// Ends all workers that have not ended; tells of one that does not.
    fn end_by_force(&mut self) -> Option<u32> {
        self.crew.kill();
        let deadline = Instant::now() + END_TIMEOUT;
        let mut stuck = None;
        for who in self.crew.everybody() {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(worker) = self.crew.get_mut(who) else {
                continue;
            };
            if worker.process.has_ended_within(left) {
                let _ = worker.process.wait();
            } else {
                stuck = Some(worker.process.id());
            }
        }
        stuck
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // However this process comes to its end, the workers do not outlive it.
        self.crew.kill();
    }
}

//! The supervisor of a share: holds the socket, and has a worker ready for who connects.
//!
//! It reads nothing that a front end says but whether it says something: who only looks whether
//! somebody listens takes up no worker. One front end is served at a time, and the next waits at the
//! socket until the first has gone. A worker that dies takes its connection with it, and the next one
//! connects to another.

use super::door::{Door, Listening};
use super::events::Event;
use crate::channel::Message;
use crate::config::ShareConfig;
use crate::control::place::{ControlSocket, file_name_of_share};
use crate::error::{CommandError, system};
use crate::log::Log;
use crate::policy_file::PolicyFiles;
use crate::process::{Process, Role};
use crate::systemd;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use thrufs_sys::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SignalFd};

/// How long a worker may take to be ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long somebody who was let in may say nothing.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a worker has to end after its last requests, which are waited for before.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Most workers in a row that end without having served anybody, before it is given up.
const FAILURES_MAX: u32 = 3;

/// A worker that has waited for so long was no failure, whatever ended it.
const LASTING: Duration = Duration::from_secs(60);

/// How long to leave a socket alone that nobody can be let in by: no descriptors, no memory.
const LET_IN_PAUSE: Duration = Duration::from_millis(100);

/// What the worker is about.
#[derive(Debug)]
pub(super) enum Phase {
    /// It is being started.
    Starting,
    /// It waits for somebody to connect.
    Ready,
    /// Somebody is connected, since then, and has not spoken.
    LetIn(OwnedFd, Instant),
    /// It serves somebody.
    Serving,
    /// It was told to end, and nobody is let in any more.
    Ending,
}

/// A share.
pub(super) struct Supervisor {
    pub(super) config: ShareConfig,
    source: OwnedFd,
    /// Keeps the file open that the log goes to.
    _log: Log,
    pub(super) signals: SignalFd,
    pub(super) door: Door,
    /// With what to accept from.
    control: Option<(ControlSocket, OwnedFd)>,
    pub(super) worker: Process,
    pub(super) phase: Phase,
    started: Instant,
    /// Workers in a row that have served nobody.
    failures: u32,
    last_words: Option<String>,
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
        let signals = SignalFd::block_and_open(&[SIGTERM, SIGINT, SIGHUP, SIGUSR1])
            .map_err(system("receive signals"))?;
        let door = Door::open(listening)?;
        let control = ControlSocket::make_if_possible(&config.server.control)?;
        let worker = start_worker(&config, &source, control.as_ref())?;
        Ok(Supervisor {
            config,
            source,
            _log: log,
            signals,
            door,
            control,
            worker,
            phase: Phase::Starting,
            started: Instant::now(),
            failures: 0,
            last_words: None,
            once,
        })
    }

    /// Waits until the first worker is ready. What is wrong with it is wrong with the share.
    fn wait_until_ready(&mut self) -> Result<Option<Result<(), CommandError>>, CommandError> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match self.next_event(Some(deadline)) {
                Event::Worker(Message::Ready) => {
                    self.phase = Phase::Ready;
                    return Ok(None);
                }
                Event::Worker(Message::Failed(why)) => {
                    self.end_worker();
                    return Err(CommandError::Server(why));
                }
                Event::WorkerEnded => {
                    let _ = self.worker.wait();
                    return Err(CommandError::WorkerGone);
                }
                Event::Signal(number @ (SIGTERM | SIGINT | SIGHUP)) => {
                    return Ok(Some(self.stop(number)));
                }
                Event::Deadline | Event::WorkerStuck => {
                    self.end_worker();
                    return Err(CommandError::WorkerGone);
                }
                _ => {}
            }
        }
    }

    /// Lets the sockets be found, and tells who waits for that.
    fn announce(&mut self) -> Result<(), CommandError> {
        self.door.publish()?;
        if let Some((control, _)) = &mut self.control {
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

    /// Serves who connects, one after the other.
    fn serve(&mut self) -> Result<(), CommandError> {
        loop {
            let deadline = match &self.phase {
                Phase::Starting => Some(self.started + START_TIMEOUT),
                Phase::LetIn(_, since) => Some(*since + SILENCE_TIMEOUT),
                Phase::Ready | Phase::Serving | Phase::Ending => None,
            };
            match self.next_event(deadline) {
                Event::Signal(SIGUSR1) => {
                    let _ = self.worker.channel.send(&Message::Statistics);
                }
                Event::Signal(SIGHUP) if !self.config.server.ends_on_hangup() => self.reload(),
                Event::Signal(number) | Event::Worker(Message::Signalled(number)) => {
                    return self.stop(number);
                }
                Event::Knock => self.let_in(),
                Event::Speaks => self.hand_over(),
                Event::Gone => self.phase = Phase::Ready,
                Event::Deadline if matches!(self.phase, Phase::LetIn(..)) => {
                    tracing::warn!("who connected says nothing: disconnecting it");
                    self.phase = Phase::Ready;
                }
                Event::Deadline => self.worker.kill(),
                Event::Worker(Message::Ready) => self.phase = Phase::Ready,
                Event::Worker(Message::Failed(why)) => self.last_words = Some(why),
                Event::Worker(message) => tracing::debug!(?message, "from the worker"),
                Event::WorkerEnded => {
                    let status = self.worker.wait().map_err(system("wait for the worker"))?;
                    if let Some(end) = self.after(Some(status)) {
                        return end;
                    }
                }
                Event::WorkerStuck => {
                    let process = self.worker.id();
                    tracing::error!(
                        "requests do not end, because the source does not answer: process {process} \
                         stays until it does"
                    );
                    if let Some(end) = self.after(None) {
                        return end;
                    }
                }
            }
        }
    }

    fn let_in(&mut self) {
        match self.door.let_in() {
            Ok(Some(stream)) => self.phase = Phase::LetIn(stream, Instant::now()),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!("cannot let in who connects: {error}");
                std::thread::sleep(LET_IN_PAUSE);
            }
        }
    }

    fn hand_over(&mut self) {
        let phase = std::mem::replace(&mut self.phase, Phase::Serving);
        let Phase::LetIn(stream, _) = phase else {
            return;
        };
        tracing::info!("a virtual machine has connected");
        if self.config.pairing {
            let callers = super::callers::open(stream.as_fd());
            let _ = self.worker.channel.send(&Message::Callers(callers));
        }
        // A worker that has died is seen next, and the connection is closed with the message.
        let _ = self.worker.channel.send(&Message::Connection(stream));
    }

    /// What comes after a worker that has ended, or does not: the next one, or the end.
    fn after(&mut self, status: Option<ExitStatus>) -> Option<Result<(), CommandError>> {
        let served = matches!(self.phase, Phase::Serving);
        let shown = status.map_or("stuck".to_owned(), |status| status.to_string());
        let well = status.is_some_and(|status| status.success());
        let last_words = self.last_words.take();
        match (served, well, &last_words) {
            (true, true, _) => tracing::info!("the virtual machine has disconnected"),
            (true, false, Some(why)) => {
                tracing::error!("the virtual machine was disconnected: {why}");
            }
            (true, false, None) => {
                tracing::error!("the worker died ({shown}): the virtual machine was disconnected");
            }
            (false, ..) => {
                tracing::error!("the worker that waits for a virtual machine died ({shown})");
            }
        }
        if served && self.once {
            return Some(if well {
                Ok(())
            } else {
                Err(last_words.map_or(CommandError::WorkerDied(shown), CommandError::Server))
            });
        }
        if served || self.started.elapsed() >= LASTING {
            self.failures = 0;
        } else {
            self.failures += 1;
        }
        if self.failures >= FAILURES_MAX {
            return Some(Err(
                last_words.map_or(CommandError::WorkerDied(shown), CommandError::Server)
            ));
        }
        // Whoever was let in and has not spoken is let go: it can connect again.
        self.phase = Phase::Starting;
        self.started = Instant::now();
        match start_worker(&self.config, &self.source, self.control.as_ref()) {
            Ok(worker) => {
                self.worker = worker;
                None
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Has the policy read again. A bad one changes nothing.
    fn reload(&self) {
        let Some(path) = &self.config.server.policy else {
            return;
        };
        match PolicyFiles::open(path, &self.config.serving) {
            Ok(PolicyFiles { text, audit }) => {
                let _ = self.worker.channel.send(&Message::Policy(text, audit));
            }
            Err(error) => tracing::error!("the policy in force stays: {error}"),
        }
    }

    /// Ends because of a signal: the worker answers what it was asked, and whoever is connected is
    /// disconnected. A second signal does not wait.
    fn stop(&mut self, signal: i32) -> Result<(), CommandError> {
        let name = match signal {
            SIGTERM => "SIGTERM",
            SIGINT => "SIGINT",
            SIGHUP => "SIGHUP",
            _ => "signal",
        };
        tracing::info!("{name}: ending");
        self.phase = Phase::Ending;
        let _ = self.worker.channel.send(&Message::Stop);
        let deadline = Instant::now() + self.config.server.stop_timeout + END_TIMEOUT;
        loop {
            match self.next_event(Some(deadline)) {
                Event::WorkerEnded => break,
                Event::Signal(SIGTERM | SIGINT) => {
                    tracing::warn!("asked a second time: ending the worker");
                    break;
                }
                Event::Deadline | Event::WorkerStuck => {
                    tracing::warn!("the worker does not end by itself: ending it");
                    break;
                }
                _ => {}
            }
        }
        if self.end_worker() {
            Ok(())
        } else {
            Err(CommandError::WorkerStuck(self.worker.id()))
        }
    }

    /// Ends the worker by force, if it has not ended; tells whether it has.
    fn end_worker(&mut self) -> bool {
        self.worker.kill();
        let ended = self.worker.has_ended_within(END_TIMEOUT);
        if ended {
            let _ = self.worker.wait();
        }
        ended
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // However this process comes to its end, the worker does not outlive it.
        self.worker.kill();
    }
}

fn start_worker(
    config: &ShareConfig,
    source: &OwnedFd,
    control: Option<&(ControlSocket, OwnedFd)>,
) -> Result<Process, CommandError> {
    let worker =
        Process::start(Role::ShareWorker, config.paths()).map_err(system("start the worker"))?;
    let say = |message: Message| {
        let said = worker.channel.send(&message);
        said.map_err(system("speak to the worker"))
    };
    let duplicate = |descriptor: &OwnedFd| {
        let copy = descriptor.try_clone();
        copy.map_err(system("duplicate a descriptor"))
    };
    if let Some((socket, listener)) = control {
        let file = socket.file().try_clone();
        let file = file.map_err(system("duplicate a descriptor"))?;
        say(Message::Control(duplicate(listener)?, file))?;
    }
    if let Some(path) = &config.server.policy {
        let PolicyFiles { text, audit } = PolicyFiles::open(path, &config.serving)?;
        say(Message::Policy(text, audit))?;
    }
    say(Message::Share(Box::new(config.clone()), duplicate(source)?))?;
    Ok(worker)
}

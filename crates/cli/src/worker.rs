//! The worker: parses requests and serves them.
//!
//! It holds no more privilege than serving needs. Two kinds of threads run here: the session's, and
//! one watcher, which waits for signals and for the supervisor. The watcher is started before the
//! main thread leaves the tree and filters its system calls: it stays in the tree and may unmount, so
//! that it can still take the mount away when the supervisor is gone.

use crate::callers::Callers;
use crate::channel::{Channel, Message};
use crate::config::MountConfig;
use crate::confinement::{self, Duty};
use crate::control::answer::{Served, Subject};
use crate::control::server::Server;
use crate::listening::SocketFile;
use crate::log::Log;
use crate::mounting::{self, Target};
use crate::policy_file::Loaded;
use crate::process;
use crate::waiting;
use std::error::Error;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thrufs::session::{self, Session, SessionConfig, SessionError, SessionHandle, Threads};
use thrufs_hostdir::{HostDir, Programs};
use thrufs_sys::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SignalFd};

/// How often an orphan looks whether its last users are gone.
const ORPHAN_INTERVAL: Duration = Duration::from_millis(50);

/// The process that serves (see [`Role::Worker`](crate::process::Role::Worker)).
pub(crate) fn main() -> ExitCode {
    let Ok(supervisor) = Channel::of_this_process() else {
        return ExitCode::FAILURE;
    };
    let (mut control, mut callers) = (None, None);
    let (config, descriptors) = loop {
        match supervisor.receive() {
            Ok(Some(Message::Control(listener, file))) => control = Some((listener, file)),
            Ok(Some(Message::AboutCallers(socket))) => callers = Some(Callers::new(socket)),
            Ok(Some(Message::Serve(config, descriptors))) => break (config, descriptors),
            _ => return ExitCode::FAILURE,
        }
    };
    let supervisor = Arc::new(supervisor);
    match serve(*config, descriptors, (control, callers), &supervisor) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            // Said before this process tries to end: threads that wait in the kernel may keep it.
            let last_words = match error.downcast_ref() {
                Some(SessionError::Stuck(threads)) => Message::Stuck(*threads),
                _ => Message::Failed(error.to_string()),
            };
            let _ = supervisor.send(&last_words);
            ExitCode::FAILURE
        }
    }
}

fn serve(
    mut config: MountConfig,
    descriptors: Vec<OwnedFd>,
    (control, callers): (Option<(OwnedFd, OwnedFd)>, Option<Callers>),
    supervisor: &Arc<Channel>,
) -> Result<(), Box<dyn Error>> {
    let log = Log::begin(&config.server)?;
    let _ = rustix::thread::set_name(c"thrufs-worker");
    std::env::set_current_dir("/")?;
    let mut descriptors = descriptors.into_iter();
    let (Some(device), Some(source)) = (descriptors.next(), descriptors.next()) else {
        return Err("started without device or source".into());
    };
    // Keeps a tree together that is mounted nowhere else, for as long as the source is served. There is
    // nothing above it.
    let apart = descriptors.next();
    let signals = SignalFd::block_and_open(&[SIGTERM, SIGINT, SIGHUP, SIGUSR1])?;
    confinement::raise_descriptor_limit();
    let privileged = mounting::is_privileged();
    if privileged {
        confinement::drop_privileges(config.pairing)?;
    }
    thrufs_sys::proc_fd::prepare()?;
    // Asked once, by a prctl or in /proc; later there is neither, and rustix panics without an answer.
    let _ = rustix::param::page_size();
    if let Some(path) = &config.server.policy {
        Loaded::from(path)?.serve_by(&mut config.serving);
    }
    let (source, tree) = match privileged && apart.is_none() {
        true => confinement::take_source(source),
        false => (source, None),
    };
    let callers = callers.map(Arc::new);
    config.serving.programs = callers.clone().map(|callers| callers as Arc<dyn Programs>);
    let file_system = Arc::new(HostDir::from_fd(source, config.serving.clone())?);
    let threads = Threads {
        readers: config.threads.and_then(NonZeroUsize::new),
        pair: config.pairing,
    };
    let session_config = SessionConfig {
        threads,
        transport: config.transport,
        ring: config.ring,
        ..SessionConfig::default()
    };
    let callers = callers.map(|callers| callers as Arc<dyn session::Callers>);
    let served = Arc::clone(&file_system);
    let session = Session::with_callers(served, device, session_config, callers)?;
    let (listener, control_file) = control.unzip();
    let subject = Arc::new(Subject {
        place: config.mountpoint.clone(),
        served: Served::Mount(Arc::clone(&file_system), session.handle()),
    });
    let watcher = Watcher {
        supervisor: Arc::clone(supervisor),
        signals,
        handle: session.handle(),
        subject: Arc::clone(&subject),
        file_system,
        control_file: control_file.map(SocketFile::from_descriptor),
        target: Target {
            mountpoint: config.mountpoint.clone(),
            device: None,
            privileged,
        },
        log,
        policy: config.server.policy.clone(),
        ends_on_hangup: config.server.ends_on_hangup(),
        stop_timeout: config.server.stop_timeout,
    };
    std::thread::Builder::new()
        .name("thrufs-watcher".to_owned())
        .spawn(move || watcher.watch())?;
    if privileged {
        confinement::leave_the_tree(tree.as_ref());
    }
    if let Some(listener) = listener {
        answer_by_socket(listener, subject)?;
    }
    confinement::filter_system_calls(Duty::Serving);
    match session.handshake() {
        Ok(_) => {}
        // Told to end before it began: whoever told it knows why.
        Err(SessionError::Ended) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    supervisor.send(&Message::Ready)?;
    let end = session.run();
    drop((apart, tree));
    tracing::debug!(?end, "the session has ended");
    end.map(drop).map_err(Into::into)
}

/// Starts the thread that answers by the control socket, in the tree that the calling thread is in.
fn answer_by_socket(listener: OwnedFd, subject: Arc<Subject>) -> Result<(), Box<dyn Error>> {
    let server = Server::new(listener)?;
    std::thread::Builder::new()
        .name("thrufs-control".to_owned())
        .spawn(move || {
            confinement::filter_system_calls(Duty::Controlling);
            let errno = server.serve(&mut |command| subject.answer(command));
            tracing::warn!("the control socket is served no more: {errno}");
        })?;
    Ok(())
}

/// Waits for signals and for the supervisor.
struct Watcher {
    supervisor: Arc<Channel>,
    signals: SignalFd,
    handle: SessionHandle,
    subject: Arc<Subject>,
    file_system: Arc<HostDir>,
    /// To be removed when the supervisor is gone.
    control_file: Option<SocketFile>,
    target: Target,
    log: Log,
    policy: Option<PathBuf>,
    ends_on_hangup: bool,
    stop_timeout: Duration,
}

impl Watcher {
    fn watch(mut self) {
        if let Ok(thread) = process::this_thread() {
            let _ = self.supervisor.send(&Message::Watching(thread));
        }
        // An ordinary user's must be able to run the set-user-id program that unmounts.
        if self.target.privileged {
            confinement::filter_system_calls(Duty::Watching);
        }
        loop {
            let descriptors = [Some(self.signals.as_fd()), Some(self.supervisor.as_fd())];
            let [signal, message] = waiting::readable(descriptors, None);
            if signal && let Ok(signal) = self.signals.read() {
                self.on_signal(signal.number);
            }
            if message {
                match self.supervisor.receive() {
                    Ok(Some(message)) => self.on_message(&message),
                    Ok(None) | Err(_) => return self.on_orphaned(),
                }
            }
        }
    }

    fn on_signal(&self, number: i32) {
        match number {
            SIGUSR1 => self.print_statistics(),
            SIGHUP if !self.ends_on_hangup => self.reload(),
            // Unmounting is the supervisor's. If it is gone, that is noticed next.
            number => drop(self.supervisor.send(&Message::Signalled(number))),
        }
    }

    fn on_message(&mut self, message: &Message) {
        match message {
            Message::Stop => self.handle.shutdown(),
            Message::Statistics => self.print_statistics(),
            Message::Reload => self.reload(),
            Message::Background => {
                if let Err(error) = self.log.leave_the_terminal() {
                    tracing::warn!("{error}");
                }
            }
            other => tracing::debug!(?other, "not for a worker"),
        }
    }

    /// Reads the policy again. A bad one changes nothing.
    fn reload(&self) {
        let Some(path) = &self.policy else { return };
        let replaced = Loaded::from(path).and_then(|loaded| {
            let (policy, audit) = loaded.into_parts();
            Ok(self.file_system.replace_policy(policy, audit)?)
        });
        match replaced {
            Ok(()) => tracing::info!("serving by the policy in {} as it is now", path.display()),
            Err(error) => tracing::error!("the policy in force stays: {error}"),
        }
    }

    /// Without a supervisor nobody else will unmount. Users have as long as if it had been asked to
    /// stop.
    fn on_orphaned(&mut self) {
        // First: with the mount goes the session, and with that this process.
        if let Some(file) = &self.control_file {
            file.remove();
        }
        let mountpoint = self.target.mountpoint.display();
        if self.handle.features().is_none() {
            self.handle.shutdown();
            return;
        }
        self.target.device = mounting::device_number(&self.target.mountpoint);
        match self.target.unmount(true) {
            Ok(()) => tracing::error!("the supervisor died: unmounted {mountpoint}"),
            Err(error) => tracing::error!("the supervisor died: {error}"),
        }
        let deadline = Instant::now() + self.stop_timeout;
        while !self.handle.is_ending() && Instant::now() < deadline {
            std::thread::sleep(ORPHAN_INTERVAL);
        }
        self.handle.shutdown();
    }

    /// Asked for in so many words, so it is no matter of log levels.
    fn print_statistics(&self) {
        // In one piece: others may write to the same file.
        eprintln!("{}", self.subject.statistics_text());
    }
}

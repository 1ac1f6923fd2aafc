//! The worker: parses requests and serves them.
//!
//! It holds no more privilege than serving needs. Two kinds of threads run here: the session's, and
//! one watcher, which waits for signals and for the supervisor. All are confined alike. When the
//! supervisor is gone, the watcher aborts the connection and ends the process, whatever its threads wait
//! for: the mount is dead, and stays for others to take away.

use crate::callers::Callers;
use crate::channel::{Channel, Message};
use crate::config::MountConfig;
use crate::confinement::{self, Duty};
use crate::control::answer::{Served, Subject};
use crate::control::server::Server;
use crate::log;
use crate::mounting;
use crate::policy_file::{Loaded, PolicyFiles};
use crate::process;
use crate::waiting;
use std::error::Error;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use thrufs::session::{self, Session, SessionConfig, SessionError, SessionHandle, Threads};
use thrufs_hostdir::policy::Accounts;
use thrufs_hostdir::{FileHandles, HostDir, Programs};
use thrufs_sys::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SignalFd};

/// The process that serves (see [`Role::Worker`](crate::process::Role::Worker)).
pub(crate) fn main() -> ExitCode {
    let Ok(supervisor) = Channel::of_this_process() else {
        return ExitCode::FAILURE;
    };
    let (mut control, mut callers, mut policy) = (None, None, None);
    let (config, descriptors) = loop {
        match supervisor.receive() {
            Ok(Some(Message::Control(listener))) => control = Some(listener),
            Ok(Some(Message::AboutCallers(socket))) => callers = Some(Callers::new(socket)),
            Ok(Some(Message::Policy(text, audit))) => policy = Some(PolicyFiles { text, audit }),
            Ok(Some(Message::Serve(config, descriptors))) => break (config, descriptors),
            _ => return ExitCode::FAILURE,
        }
    };
    let supervisor = Arc::new(supervisor);
    let given = (control, callers, policy);
    match serve(*config, descriptors, given, &supervisor) {
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
    (control, callers, files): (Option<OwnedFd>, Option<Callers>, Option<PolicyFiles>),
    supervisor: &Arc<Channel>,
) -> Result<(), Box<dyn Error>> {
    log::begin_in_worker(&config.server)?;
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
    let handles = config.serving.file_handles;
    if privileged {
        confinement::drop_privileges(config.pairing, handles)?;
    }
    thrufs_sys::proc_fd::prepare()?;
    // Asked once, by a prctl or in /proc; later there is neither, and rustix panics without an answer.
    let _ = rustix::param::page_size();
    let mut policy = None;
    if let (Some(path), Some(files)) = (&config.server.policy, files) {
        // Whom a later policy may name: those files are out of view then.
        let accounts = Accounts::read()?;
        Loaded::read(files, path, &accounts)?.serve_by(&mut config.serving);
        policy = Some((path.clone(), accounts));
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
        abort: None,
        mountpoint: config.mountpoint.clone(),
        policy,
    };
    if privileged {
        confinement::leave_the_tree(tree.as_ref());
    }
    std::thread::Builder::new()
        .name("thrufs-watcher".to_owned())
        .spawn(move || watcher.watch(handles))?;
    if let Some(listener) = control {
        answer_by_socket(listener, subject, handles)?;
    }
    confinement::filter_system_calls(Duty::Serving, handles);
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
fn answer_by_socket(
    listener: OwnedFd,
    subject: Arc<Subject>,
    handles: FileHandles,
) -> Result<(), Box<dyn Error>> {
    let server = Server::new(listener)?;
    std::thread::Builder::new()
        .name("thrufs-control".to_owned())
        .spawn(move || {
            confinement::filter_system_calls(Duty::Controlling, handles);
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
    /// Aborts the connection, once it is mounted.
    abort: Option<OwnedFd>,
    mountpoint: PathBuf,
    /// What it is called, and whom it may name.
    policy: Option<(PathBuf, Accounts)>,
}

impl Watcher {
    fn watch(mut self, handles: FileHandles) {
        if let Ok(thread) = process::this_thread() {
            let _ = self.supervisor.send(&Message::Watching(thread));
        }
        confinement::filter_system_calls(Duty::Watching, handles);
        loop {
            let descriptors = [Some(self.signals.as_fd()), Some(self.supervisor.as_fd())];
            let [signal, message] = waiting::readable(descriptors, None);
            if signal && let Ok(signal) = self.signals.read() {
                match signal.number {
                    SIGUSR1 => self.print_statistics(),
                    // The supervisor's to act upon. If it is gone, that is noticed next.
                    number => drop(self.supervisor.send(&Message::Signalled(number))),
                }
            }
            if message {
                match self.supervisor.receive() {
                    Ok(Some(message)) => self.on_message(message),
                    Ok(None) | Err(_) => self.on_orphaned(),
                }
            }
        }
    }

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Stop => self.handle.shutdown(),
            Message::Mounted(abort) => self.abort = abort,
            Message::Statistics => self.print_statistics(),
            Message::Policy(text, audit) => self.replace_policy(PolicyFiles { text, audit }),
            other => tracing::debug!(?other, "not for a worker"),
        }
    }

    /// A bad one changes nothing.
    fn replace_policy(&self, files: PolicyFiles) {
        let Some((path, accounts)) = &self.policy else {
            return;
        };
        let replaced = Loaded::read(files, path, accounts).and_then(|loaded| {
            let (policy, audit) = loaded.into_parts();
            Ok(self.file_system.replace_policy(policy, audit)?)
        });
        match replaced {
            Ok(()) => tracing::info!("serving by the policy in {} as it is now", path.display()),
            Err(error) => tracing::error!("the policy in force stays: {error}"),
        }
    }

    /// Ends the connection first: threads that wait in the kernel may keep this process, and hold it.
    fn on_orphaned(&self) -> ! {
        if let Some(abort) = &self.abort {
            let _ = thrufs::mount::abort_by(abort);
        }
        let mountpoint = self.mountpoint.display();
        tracing::error!("the supervisor of {mountpoint} died: ending");
        std::process::exit(1)
    }

    /// Asked for in so many words, so it is no matter of log levels.
    fn print_statistics(&self) {
        // In one piece: others may write to the same file. Perhaps nobody hears it any more.
        let _ = writeln!(io::stderr(), "{}", self.subject.statistics_text());
    }
}

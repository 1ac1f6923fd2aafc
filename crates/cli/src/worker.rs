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
use crate::policy_file::Loaded;
use crate::watcher::{Given, Watched, Watcher, hear};
use std::error::Error;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use thrufs::session::{self, Session, SessionConfig, SessionError, SessionHandle, Threads};
use thrufs_hostdir::policy::Accounts;
use thrufs_hostdir::{HostDir, Programs};
use thrufs_sys::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SignalFd};

/// The process that serves (see [`Role::Worker`](crate::process::Role::Worker)).
pub(crate) fn main() -> ExitCode {
    let Ok(supervisor) = Channel::of_this_process() else {
        return ExitCode::FAILURE;
    };
    let Some((given, Message::Serve(config, descriptors))) = hear(&supervisor) else {
        return ExitCode::FAILURE;
    };
    let supervisor = Arc::new(supervisor);
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
    given: Given,
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
    if let (Some(path), Some(files)) = (&config.server.policy, given.policy) {
        // Whom a later policy may name: those files are out of view then.
        let accounts = Accounts::read()?;
        Loaded::read(files, path, &accounts)?.serve_by(&mut config.serving);
        policy = Some((path.clone(), accounts));
    }
    let (source, tree) = match privileged && apart.is_none() {
        true => confinement::take_source(source),
        false => (source, None),
    };
    let callers = given.callers.map(Callers::new).map(Arc::new);
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
        subject: Arc::clone(&subject),
        policy,
        watched: Mounted {
            handle: session.handle(),
            abort: None,
            mountpoint: config.mountpoint.clone(),
        },
    };
    if privileged {
        confinement::leave_the_tree(tree.as_ref());
    }
    watcher.start(move || confinement::filter_system_calls(Duty::Watching, handles))?;
    if let Some(listener) = given.control {
        let confine = move || confinement::filter_system_calls(Duty::Controlling, handles);
        Server::start(listener, confine, move |command| subject.answer(command))?;
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

/// What the watcher acts upon.
struct Mounted {
    handle: SessionHandle,
    /// Aborts the connection, once it is mounted.
    abort: Option<OwnedFd>,
    mountpoint: PathBuf,
}

impl Watched for Mounted {
    const PASSED_ON: &[i32] = &[SIGTERM, SIGINT, SIGHUP];

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Stop => self.handle.shutdown(),
            Message::Mounted(abort) => self.abort = abort,
            other => tracing::debug!(?other, "unexpected message to the worker"),
        }
    }

    /// Ends the connection first: threads that wait in the kernel may keep this process, and hold it.
    fn on_orphaned(&mut self) {
        if let Some(abort) = &self.abort {
            let _ = thrufs::mount::abort_by(abort);
        }
        let mountpoint = self.mountpoint.display();
        tracing::error!("the supervisor of {mountpoint} died: ending");
        std::process::exit(1)
    }
}

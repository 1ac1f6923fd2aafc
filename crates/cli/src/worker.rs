//! The worker of a mount: parses requests and serves them.
//!
//! It has only the privileges that serving needs. Its threads are the session's and the watcher, all
//! confined. When the supervisor dies, the watcher aborts the connection and ends the process, whatever
//! its threads wait for: the mount is dead, and stays.

use crate::callers::Callers;
use crate::channel::{Channel, Message};
use crate::config::MountConfig;
use crate::confinement::{self, Duty};
use crate::control::answer::{Served, Subject};
use crate::control::server::ControlServer;
use crate::log;
use crate::mounting;
use crate::policy_file::Loaded;
use crate::watcher::{Watched, Watcher, WorkerSetup, receive_setup};
use std::error::Error;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use thrufs::session::{self, Session, SessionConfig, SessionError, SessionHandle, Threads};
use thrufs_hostdir::{HostDir, Programs, Resources};
use thrufs_policy::Accounts;
use thrufs_sys::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SignalFd};

/// The process (see [`Role::Worker`](crate::process::Role::Worker)).
pub(crate) fn main() -> ExitCode {
    let Ok(supervisor) = Channel::of_this_process() else {
        return ExitCode::FAILURE;
    };
    let Some((setup, Message::Serve(config, descriptors))) = receive_setup(&supervisor) else {
        return ExitCode::FAILURE;
    };
    let supervisor = Arc::new(supervisor);
    match serve(*config, descriptors, setup, &supervisor) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            // Sent before the exit, which blocked threads may delay.
            let exit_reason = match error.downcast_ref() {
                Some(SessionError::Stuck(threads)) => Message::Stuck(*threads),
                _ => Message::Failed(error.to_string()),
            };
            let _ = supervisor.send(&exit_reason);
            ExitCode::FAILURE
        }
    }
}

fn serve(
    config: MountConfig,
    descriptors: Vec<OwnedFd>,
    setup: WorkerSetup,
    supervisor: &Arc<Channel>,
) -> Result<(), Box<dyn Error>> {
    log::begin_in_worker(&config.server)?;
    let _ = rustix::thread::set_name(c"thrufs-worker");
    std::env::set_current_dir("/")?;
    let mut descriptors = descriptors.into_iter();
    let (Some(device), Some(source)) = (descriptors.next(), descriptors.next()) else {
        return Err("started without device or source".into());
    };
    // Holds a clone that is mounted nowhere, while the source is served. Nothing is above it.
    let detached_tree = descriptors.next();
    let signals = SignalFd::block_and_open(&[SIGTERM, SIGINT, SIGHUP, SIGUSR1])?;
    confinement::raise_descriptor_limit();
    let privileged = mounting::is_privileged();
    let handles = config.serving.file_handles;
    if privileged {
        confinement::drop_privileges(config.server.pairing, handles)?;
    }
    thrufs_sys::proc_fd::prepare()?;
    // Cached now: later there is neither prctl(2) nor /proc for it, and rustix panics.
    let _ = rustix::param::page_size();
    let mut policy = None;
    let mut resources = Resources::default();
    if let (Some(path), Some(files)) = (&config.server.policy, setup.policy) {
        // For later policies: /etc/passwd is not visible then.
        let accounts = Accounts::read()?;
        Loaded::read(files, path, &accounts)?.serve_by(&mut resources);
        policy = Some((path.clone(), accounts));
    }
    let (source, tree) = match privileged && detached_tree.is_none() {
        true => confinement::clone_source_mounts(source),
        false => (source, None),
    };
    let callers = setup.callers.map(Callers::new).map(Arc::new);
    resources.programs = callers.clone().map(|callers| callers as Arc<dyn Programs>);
    let file_system = Arc::new(HostDir::from_fd(source, config.serving.clone(), resources)?);
    let threads = Threads {
        readers: config.threads.and_then(NonZeroUsize::new),
        pair: config.server.pairing,
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
        watched: MountWatch {
            handle: session.handle(),
            abort: None,
            mountpoint: config.mountpoint.clone(),
        },
    };
    if privileged {
        confinement::enter_private_tree(tree.as_ref());
    }
    watcher.start(move || confinement::filter_system_calls(Duty::Watching, handles))?;
    if let Some(listener) = setup.control {
        let confine = move || confinement::filter_system_calls(Duty::Controlling, handles);
        ControlServer::start(listener, confine, move |command| subject.answer(command))?;
    }
    confinement::filter_system_calls(Duty::Serving, handles);
    match session.handshake() {
        Ok(_) => {}
        // Ended on request before it began.
        Err(SessionError::Ended) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    supervisor.send(&Message::Ready)?;
    let end = session.run();
    drop((detached_tree, tree));
    tracing::debug!(?end, "the session has ended");
    end.map(drop).map_err(Into::into)
}

/// What the watcher controls.
struct MountWatch {
    handle: SessionHandle,
    abort: Option<OwnedFd>,
    mountpoint: PathBuf,
}

impl Watched for MountWatch {
    const PASSED_ON: &[i32] = &[SIGTERM, SIGINT, SIGHUP];

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Stop => self.handle.shutdown(),
            Message::Mounted(abort) => self.abort = abort,
            other => tracing::debug!(?other, "unexpected message to the worker"),
        }
    }

    /// Aborts the connection first: blocked threads may delay the exit, and hold it.
    fn on_orphaned(&mut self) {
        if let Some(abort) = &self.abort {
            let _ = thrufs::mount::abort_by(abort);
        }
        let mountpoint = self.mountpoint.display();
        tracing::error!("the supervisor of {mountpoint} died: ending");
        std::process::exit(1)
    }
}

//! The worker of a mount: parses requests and serves them.
//!
//! It has only the privileges that serving needs. Its threads are the session's and the watcher, all
//! confined. When the supervisor dies, the watcher aborts the connection and ends the process, whatever
//! its threads wait for: the mount is dead, and stays.

use crate::callers::Callers;
use crate::channel::{Notice, Order};
use crate::config::MountConfig;
use crate::confinement::{self, Duty, Inherited, Outcome, Serving};
use crate::control::answer::{Served, Subject, configured};
use crate::control::connection::Answer;
use crate::control::server::answer_all;
use crate::fd_store::OfSupervisor;
use crate::mounting;
use crate::watcher::Watched;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use thrufs::NodeId;
use thrufs::session::{
    self, Journal, Session, SessionConfig, SessionError, SessionHandle, Threads,
};
use thrufs_hostdir::{HostDir, Ledger, Programs};
use thrufs_sys::signal::{SIGHUP, SIGINT, SIGTERM};

/// The process (see [`Role::Worker`](crate::process::Role::Worker)).
pub(crate) fn main() -> ExitCode {
    confinement::run(|inherited, message| {
        let Order::Serve(config, descriptors) = message else {
            return Err("started without a mount".into());
        };
        serve(inherited, *config, descriptors).inspect_err(|error| tracing::error!("{error}"))
    })
}

fn serve(inherited: Inherited, config: MountConfig, descriptors: Vec<OwnedFd>) -> Outcome {
    let (mut unprivileged, mut resources) = inherited.drop_privileges(&config)?;
    let options = serde_json::to_value(&config)?;
    let mut descriptors = descriptors.into_iter();
    let (Some(device), Some(source)) = (descriptors.next(), descriptors.next()) else {
        return Err("started without device or source".into());
    };
    let source = unprivileged.isolate(source, descriptors.next());
    if let Some(attributes) = config.atime() {
        unprivileged.set_atime(attributes);
    }
    let callers = unprivileged.callers.take().map(Callers::new).map(Arc::new);
    resources.programs = callers.clone().map(|callers| callers as Arc<dyn Programs>);
    let journal = match <[OwnedFd; 3]>::try_from(std::mem::take(&mut unprivileged.record)) {
        Ok([journal, ledger, fd_store]) => {
            resources.ledger = Some(Ledger::from(ledger));
            let fd_store = OfSupervisor::new(fd_store, 1);
            fd_store.fetch();
            resources.fd_store = Some(Arc::new(fd_store));
            Some(Journal::from_memory(journal)?)
        }
        Err(_) => None,
    };
    let deaths = journal.as_ref().map_or(0, Journal::deaths);
    let configured = configured(&config.source, &config.serving);
    let followed = config.serving.follows().then_some(config.source);
    let file_system = Arc::new(HostDir::from_fd(source, config.serving, resources)?);
    let session_config = SessionConfig {
        threads: Threads {
            readers: config.threads.and_then(NonZeroUsize::new),
            pair: config.server.pairing,
        },
        transport: config.transport,
        ring: config.ring,
        ..SessionConfig::default()
    };
    let callers = callers.map(|callers| callers as Arc<dyn session::Callers>);
    let served = Arc::clone(&file_system);
    let session = match journal {
        Some(journal) => Session::journaled(
            Arc::clone(&served),
            device,
            session_config,
            callers,
            journal,
        )?,
        None => Session::with_callers(Arc::clone(&served), device, session_config, callers)?,
    };
    let subject = Arc::new(Subject {
        place: config.mountpoint.clone(),
        served: Served::Mount(file_system, session.handle(), deaths),
        configured,
        options: Some(options),
    });
    let watched = MountWatch {
        handle: session.handle(),
        abort: None,
        mountpoint: config.mountpoint,
    };
    let (confined, mounts) = unprivileged.confine(followed.as_deref())?;
    if let Some(mounts) = mounts {
        served.watch_mounts(mounts);
    }
    answer_requests(confined.start(session, &subject, watched)?)
}

fn answer_requests(serving: Serving<Session<HostDir>>) -> Outcome {
    match serving.server.handshake() {
        Ok(_) => {}
        // Ended on request before it began.
        Err(SessionError::Ended) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    serving.supervisor.send(&Notice::Ready)?;
    let end = serving.server.run();
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
    const DUTIES: [Duty; 2] = [Duty::Serving, Duty::Watching];
    const ANSWER_QUERIES: fn(OwnedFd, &mut Answer<'_>) = answer_all;

    fn on_message(&mut self, message: Order) {
        match message {
            Order::Stop => self.handle.shutdown(),
            Order::Mounted(mut abort) => self.abort = abort.pop(),
            other => tracing::debug!(?other, "unexpected message to the worker"),
        }
    }

    /// Aborts the connection first: blocked threads may delay the exit, and hold it.
    fn on_orphaned(&mut self) {
        let notifier = self.handle.notifier();
        mounting::expire_cached(move || {
            let _ = notifier.increment_epoch_now();
            let _ = notifier.inval_inode_now(NodeId::ROOT, 0, 0);
        });
        if let Some(abort) = &self.abort {
            let _ = thrufs::mount::abort_by(abort);
        }
        let mountpoint = self.mountpoint.display();
        tracing::error!("the supervisor of {mountpoint} died: ending");
        std::process::exit(1)
    }
}

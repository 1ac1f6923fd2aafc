//! The worker of a share: serves one front end, confined.
//!
//! Besides the threads of the device: the main thread, which speaks vhost-user with the front end, and
//! the watcher, which waits for the supervisor and signals. All are confined, before there is a second
//! thread (see [`confine_worker`]).

use super::strongbox::OfSupervisor;
use super::tree::{Sessions, SharedTree};
use crate::channel::{Channel, Message};
use crate::config::ShareConfig;
use crate::confinement::{self, Duty, confine_worker};
use crate::control::answer::{Served, Subject};
use crate::control::protocol::Command;
use crate::control::server::answer_one;
use crate::log;
use crate::policy_file::Loaded;
use crate::task::start_thread;
use crate::watcher::{Watched, Watcher, WorkerSetup, receive_setup};
use std::error::Error;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use thrufs_hostdir::{FileHandles, Ledger, Resources};
use thrufs_policy::Accounts;
use thrufs_sys::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SignalFd};
use thrufs_virtio::{Caller, ConnectionOptions, Device, DeviceError, DeviceHandle, Journal};

/// The process (see [`Role::ShareWorker`](crate::process::Role::ShareWorker)).
pub(crate) fn main() -> ExitCode {
    let Ok(supervisor) = Channel::of_this_process() else {
        return ExitCode::FAILURE;
    };
    let Some((setup, Message::Share(config, source))) = receive_setup(&supervisor) else {
        return ExitCode::FAILURE;
    };
    let supervisor = Arc::new(supervisor);
    match serve(*config, source, setup, &supervisor) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let exit_reason = match error.downcast_ref() {
                Some(DeviceError::Stuck(threads)) => Message::Stuck(*threads),
                _ => Message::Failed(error.to_string()),
            };
            let _ = supervisor.send(&exit_reason);
            ExitCode::FAILURE
        }
    }
}

fn serve(
    config: ShareConfig,
    source: OwnedFd,
    setup: WorkerSetup,
    supervisor: &Arc<Channel>,
) -> Result<(), Box<dyn Error>> {
    log::begin_in_worker(&config.server)?;
    let _ = rustix::thread::set_name(c"thrufs-worker");
    let accounts = setup
        .policy
        .as_ref()
        .map(|_| Accounts::read())
        .transpose()?;
    let signals = SignalFd::block_and_open(&[SIGTERM, SIGINT, SIGHUP, SIGUSR1])?;
    // Cached now: later there is no /proc, and rustix panics without the value.
    let _ = rustix::param::page_size();
    let source = confine_worker(source, &config, &|| map_ids(supervisor))?;
    let policy = config.server.policy.clone().zip(accounts);
    let mut resources = Resources::default();
    if let (Some((path, accounts)), Some(files)) = (&policy, setup.policy) {
        Loaded::read(files, path, accounts)?.serve_by(&mut resources);
    }
    let tree = Arc::new(SharedTree::new(source, config.serving.clone(), resources)?);
    let device = Device::new(Sessions(Arc::clone(&tree)), config.device())?;
    tree.set_device(device.handle());
    let subject = Arc::new(Subject {
        place: config.socket.clone(),
        served: Served::Share(Arc::clone(&tree)),
    });
    let (handles, action) = (config.serving.file_handles, config.filter);
    if let Some(socket) = setup.control {
        answer_supervisor(socket, Arc::clone(&subject), handles)?;
    }
    let (connect, connected) = channel();
    let watcher = Watcher {
        supervisor: Arc::clone(supervisor),
        signals,
        subject: Arc::clone(&subject),
        policy,
        watched: ShareWatch {
            connect: Some(connect),
            callers: Vec::new(),
            handle: device.handle(),
            tree,
        },
    };
    watcher.start(move || confinement::filter_system_calls_of_share(handles, action))?;
    confinement::filter_system_calls_of_share(handles, action);
    supervisor.send(&Message::Ready)?;
    // The sender is dropped: end.
    let Ok((stream, options)) = connected.recv() else {
        return Ok(());
    };
    let end = device.serve_with(stream, options);
    let figures = subject.answer(&Command::Statistics).encode();
    let _ = supervisor.send(&Message::Figures(figures));
    tracing::debug!(?end, "the connection has ended");
    end.map(drop).map_err(Into::into)
}

/// Starts the thread that answers queries of the supervisor.
fn answer_supervisor(
    socket: OwnedFd,
    subject: Arc<Subject>,
    handles: FileHandles,
) -> Result<(), Box<dyn Error>> {
    start_thread("thrufs-control", move || {
        confinement::filter_system_calls(Duty::Controlling, handles);
        answer_one(socket, &mut |command| subject.answer(command));
    })?;
    Ok(())
}

/// Requests it from the supervisor.
fn map_ids(supervisor: &Channel) -> io::Result<()> {
    supervisor.send(&Message::MapIds)?;
    match supervisor.receive()? {
        Some(Message::Ready) => Ok(()),
        Some(Message::Failed(why)) => Err(io::Error::other(why)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// What the watcher controls.
struct ShareWatch {
    /// For the connection; `None` after it was sent, or at the end.
    connect: Option<Sender<(UnixStream, ConnectionOptions)>>,
    callers: Vec<Caller>,
    handle: DeviceHandle,
    tree: Arc<SharedTree>,
}

impl Watched for ShareWatch {
    /// Signals of a terminal reach the supervisor too.
    const PASSED_ON: &[i32] = &[SIGTERM];

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Callers(files) => {
                let mut files = files.into_iter().map(File::from);
                while let (Some(stat), Some(schedstat)) = (files.next(), files.next()) {
                    self.callers.push(Caller { stat, schedstat });
                }
            }
            Message::Connection(parts) => self.on_connection(parts),
            Message::Stop => self.stop(),
            other => tracing::debug!(?other, "unexpected message to the worker of a share"),
        }
    }

    fn on_orphaned(&mut self) {
        tracing::error!("the supervisor died: disconnecting");
        self.stop();
    }
}

impl ShareWatch {
    fn on_connection(&mut self, [stream, journal, ledger, strongbox]: [OwnedFd; 4]) {
        let Ok(journal) = Journal::from_memory(journal) else {
            tracing::error!("cannot map the journal");
            return self.stop();
        };
        let strongbox = Arc::new(OfSupervisor::new(strongbox));
        self.tree
            .note_in(Ledger::from(ledger), strongbox, journal.clone());
        if let Some(connect) = self.connect.take() {
            let options = ConnectionOptions {
                callers: std::mem::take(&mut self.callers),
                journal: Some(journal),
            };
            let _ = connect.send((stream.into(), options));
        }
    }

    fn stop(&mut self) {
        self.connect = None;
        self.handle.shutdown();
    }
}

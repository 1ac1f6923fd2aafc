//! The worker of a share: serves one front end, confined.
//!
//! Besides the threads of the device: the main thread, which speaks vhost-user with the front end, and
//! the watcher, which waits for the supervisor and signals.

use super::tree::{Sessions, SharedTree};
use crate::channel::{Notice, Order};
use crate::config::ShareConfig;
use crate::confinement::{self, Duty, Inherited, Outcome};
use crate::control::answer::{Served, Subject, configured};
use crate::control::connection::Answer;
use crate::control::protocol::Command;
use crate::control::server::answer_one;
use crate::fd_store::OfSupervisor;
use crate::watcher::Watched;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use thrufs_hostdir::Ledger;
use thrufs_sys::signal::SIGTERM;
use thrufs_virtio::{Caller, ConnectionOptions, Device, DeviceHandle, Journal};

/// The process (see [`Role::ShareWorker`](crate::process::Role::ShareWorker)).
pub(crate) fn main() -> ExitCode {
    confinement::run(|inherited, message| match message {
        Order::Share(config, source) => serve(inherited, *config, source),
        _ => Err("started without a share".into()),
    })
}

fn serve(inherited: Inherited, config: ShareConfig, mut source: Vec<OwnedFd>) -> Outcome {
    let source = source.pop().ok_or("started without a source")?;
    let (confined, source, resources) = inherited.confine(source, &config)?;
    let tree = Arc::new(SharedTree::new(source, config.serving.clone(), resources)?);
    let device = Device::new(Sessions(Arc::clone(&tree)), config.device())?;
    let subject = Arc::new(Subject {
        place: config.socket,
        served: Served::Share(Arc::clone(&tree), device.handle()),
        configured: configured(&config.source, &config.serving),
        options: None,
    });
    let (connect, connected) = channel();
    let watched = ShareWatch {
        connect: Some(connect),
        handle: device.handle(),
        tree,
        machines_max: config.machines_max,
    };
    let serving = confined.start(device, &subject, watched)?;
    serving.supervisor.send(&Notice::Ready)?;
    // The sender is dropped: end.
    let Ok((stream, options)) = connected.recv() else {
        return Ok(());
    };
    let end = serving.server.serve_with(stream, options);
    let figures = subject.answer(&Command::Statistics).encode();
    let _ = serving.supervisor.send(&Notice::Figures(figures));
    tracing::debug!(?end, "the connection has ended");
    end.map(drop).map_err(Into::into)
}

/// What the watcher controls.
struct ShareWatch {
    /// For the connection; `None` after it was sent, or at the end.
    connect: Option<Sender<(UnixStream, ConnectionOptions)>>,
    handle: DeviceHandle,
    tree: Arc<SharedTree>,
    machines_max: usize,
}

impl Watched for ShareWatch {
    /// Signals of a terminal reach the supervisor too.
    const PASSED_ON: &[i32] = &[SIGTERM];
    const DUTIES: [Duty; 2] = [Duty::Sharing, Duty::Sharing];
    const ANSWER_QUERIES: fn(OwnedFd, &mut Answer<'_>) = answer_one;

    fn on_message(&mut self, message: Order) {
        match message {
            Order::Connection(descriptors) => self.on_connection(descriptors),
            Order::Stop => self.stop(),
            other => tracing::debug!(?other, "unexpected message to the worker of a share"),
        }
    }

    fn on_orphaned(&mut self) {
        tracing::error!("the supervisor died: disconnecting");
        self.stop();
    }
}

impl ShareWatch {
    fn on_connection(&mut self, mut parts: Vec<OwnedFd>) {
        let callers = parts.split_off(parts.len().min(4));
        let Ok([stream, journal, ledger, fd_store]) = <[OwnedFd; 4]>::try_from(parts) else {
            return self.stop();
        };
        let Ok(journal) = Journal::from_memory(journal) else {
            tracing::error!("cannot map the journal");
            return self.stop();
        };
        let fd_store = Arc::new(OfSupervisor::new(fd_store, self.machines_max));
        self.tree
            .note_in(Ledger::from(ledger), fd_store, journal.clone());
        let mut files = callers.into_iter().map(File::from);
        let callers = std::iter::from_fn(|| {
            let (stat, schedstat) = files.next().zip(files.next())?;
            Some(Caller { stat, schedstat })
        });
        if let Some(connect) = self.connect.take() {
            let options = ConnectionOptions {
                callers: callers.collect(),
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

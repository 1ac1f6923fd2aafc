//! The worker of a share: serves one front end, shut in.
//!
//! Two kinds of threads run here besides those of the device: the main one, which speaks vhost-user with
//! the front end, and one that hears the supervisor and signals. All are shut in alike (see
//! [`shut_in`]): it is done while there is one.

use super::strongbox::OfSupervisor;
use super::tree::{Sessions, SharedTree};
use crate::channel::{Channel, Message};
use crate::config::{FilterAction, ShareConfig};
use crate::confinement::{self, Duty, shut_in};
use crate::control::answer::{Served, Subject};
use crate::control::protocol::Command;
use crate::control::server::answer_one;
use crate::log;
use crate::policy_file::{Loaded, PolicyFiles};
use crate::process;
use crate::waiting;
use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use thrufs_hostdir::policy::Accounts;
use thrufs_hostdir::{FileHandles, Ledger};
use thrufs_sys::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SignalFd};
use thrufs_virtio::{Caller, Company, Device, DeviceError, DeviceHandle, Journal};

/// What the supervisor says before anybody is connected.
struct Orders {
    config: ShareConfig,
    source: OwnedFd,
    policy: Option<PolicyFiles>,
    /// Where the supervisor asks what it does.
    questions: Option<OwnedFd>,
}

/// The process that serves (see [`Role::ShareWorker`](crate::process::Role::ShareWorker)).
pub(crate) fn main() -> ExitCode {
    let Ok(supervisor) = Channel::of_this_process() else {
        return ExitCode::FAILURE;
    };
    let Some(orders) = hear(&supervisor) else {
        return ExitCode::FAILURE;
    };
    let supervisor = Arc::new(supervisor);
    match serve(orders, &supervisor) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let last_words = match error.downcast_ref() {
                Some(DeviceError::Stuck(threads)) => Message::Stuck(*threads),
                _ => Message::Failed(error.to_string()),
            };
            let _ = supervisor.send(&last_words);
            ExitCode::FAILURE
        }
    }
}

fn hear(supervisor: &Channel) -> Option<Orders> {
    let (mut policy, mut questions) = (None, None);
    loop {
        match supervisor.receive() {
            Ok(Some(Message::Questions(socket))) => questions = Some(socket),
            Ok(Some(Message::Policy(text, audit))) => policy = Some(PolicyFiles { text, audit }),
            Ok(Some(Message::Share(config, source))) => {
                return Some(Orders {
                    config: *config,
                    source,
                    policy,
                    questions,
                });
            }
            _ => return None,
        }
    }
}

fn serve(orders: Orders, supervisor: &Arc<Channel>) -> Result<(), Box<dyn Error>> {
    let Orders {
        mut config,
        source,
        policy,
        questions,
    } = orders;
    log::begin_in_worker(&config.server)?;
    let _ = rustix::thread::set_name(c"thrufs-worker");
    let accounts = match &policy {
        Some(_) => Accounts::read()?,
        None => Accounts::default(),
    };
    let signals = SignalFd::block_and_open(&[SIGTERM, SIGINT, SIGHUP, SIGUSR1])?;
    // Asked once; later there is no /proc, and rustix panics without an answer.
    let _ = rustix::param::page_size();
    let source = shut_in(source, &config, &|| map_ids(supervisor))?;
    let policy_path = config.server.policy.clone().unwrap_or_default();
    if let Some(files) = policy {
        Loaded::read(files, &policy_path, &accounts)?.serve_by(&mut config.serving);
    }
    let tree = Arc::new(SharedTree::new(source, config.serving.clone())?);
    let device = Device::new(Sessions(Arc::clone(&tree)), config.device())?;
    tree.set_device(device.handle());
    let subject = Arc::new(Subject {
        place: config.socket.clone(),
        served: Served::Share(Arc::clone(&tree)),
    });
    let (handles, action) = (config.serving.file_handles, config.filter);
    if let Some(socket) = questions {
        answer_supervisor(socket, Arc::clone(&subject), handles)?;
    }
    let (connect, connected) = channel();
    let listener = Listener {
        supervisor: Arc::clone(supervisor),
        signals,
        connect: Some(connect),
        callers: Vec::new(),
        handle: device.handle(),
        tree,
        subject: Arc::clone(&subject),
        accounts,
        policy: policy_path,
    };
    std::thread::Builder::new()
        .name("thrufs-listener".to_owned())
        .spawn(move || listener.listen(handles, action))?;
    confinement::filter_system_calls_of_share(handles, action);
    supervisor.send(&Message::Ready)?;
    // Nobody: told to end.
    let Ok((stream, company)) = connected.recv() else {
        return Ok(());
    };
    let end = device.serve_with(stream, company);
    let figures = subject.answer(&Command::Statistics).encode();
    let _ = supervisor.send(&Message::Figures(figures));
    tracing::debug!(?end, "the connection has ended");
    end.map(drop).map_err(Into::into)
}

/// Starts the thread that tells the supervisor what it asks.
fn answer_supervisor(
    socket: OwnedFd,
    subject: Arc<Subject>,
    handles: FileHandles,
) -> Result<(), Box<dyn Error>> {
    std::thread::Builder::new()
        .name("thrufs-control".to_owned())
        .spawn(move || {
            confinement::filter_system_calls(Duty::Controlling, handles);
            answer_one(socket, &mut |command| subject.answer(command));
        })?;
    Ok(())
}

/// Asks the supervisor for it.
fn map_ids(supervisor: &Channel) -> io::Result<()> {
    supervisor.send(&Message::MapIds)?;
    match supervisor.receive()? {
        Some(Message::Ready) => Ok(()),
        Some(Message::Failed(why)) => Err(io::Error::other(why)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Hears the supervisor, and signals.
struct Listener {
    supervisor: Arc<Channel>,
    signals: SignalFd,
    /// To whom a connection goes; none when that has happened, or never will.
    connect: Option<Sender<(UnixStream, Company)>>,
    /// Of that connection.
    callers: Vec<Caller>,
    handle: DeviceHandle,
    tree: Arc<SharedTree>,
    subject: Arc<Subject>,
    /// Whom a policy may name.
    accounts: Accounts,
    policy: PathBuf,
}

impl Listener {
    fn listen(mut self, handles: FileHandles, action: FilterAction) {
        if let Ok(thread) = process::this_thread() {
            let _ = self.supervisor.send(&Message::Watching(thread));
        }
        confinement::filter_system_calls_of_share(handles, action);
        loop {
            let descriptors = [Some(self.signals.as_fd()), Some(self.supervisor.as_fd())];
            let [signal, message] = waiting::readable(descriptors, None);
            if signal && let Ok(signal) = self.signals.read() {
                match signal.number {
                    SIGUSR1 => self.print_statistics(),
                    // Those that a terminal sends are sent to the supervisor as well.
                    SIGTERM => drop(self.supervisor.send(&Message::Signalled(SIGTERM))),
                    _ => {}
                }
            }
            if message {
                match self.supervisor.receive() {
                    Ok(Some(message)) => self.on_message(message),
                    // Without a supervisor, nobody could end this process.
                    Ok(None) | Err(_) => {
                        tracing::error!("the supervisor died: disconnecting");
                        return self.stop();
                    }
                }
            }
        }
    }

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Callers(files) => {
                let mut files = files.into_iter().map(File::from);
                while let (Some(stat), Some(schedstat)) = (files.next(), files.next()) {
                    self.callers.push(Caller { stat, schedstat });
                }
            }
            Message::Connection(parts) => self.on_connection(parts),
            Message::Policy(text, audit) => self.replace_policy(PolicyFiles { text, audit }),
            Message::Statistics => self.print_statistics(),
            Message::Stop => self.stop(),
            other => tracing::debug!(?other, "not for the worker of a share"),
        }
    }

    fn on_connection(&mut self, [stream, journal, ledger, strongbox]: [OwnedFd; 4]) {
        let Ok(journal) = Journal::from_memory(journal) else {
            tracing::error!("the journal cannot be mapped");
            return self.stop();
        };
        let strongbox = Arc::new(OfSupervisor::new(strongbox));
        self.tree
            .note_in(Ledger::from(ledger), strongbox, journal.clone());
        if let Some(connect) = self.connect.take() {
            let company = Company {
                callers: std::mem::take(&mut self.callers),
                journal: Some(journal),
            };
            let _ = connect.send((stream.into(), company));
        }
    }

    fn stop(&mut self) {
        self.connect = None;
        self.handle.shutdown();
    }

    fn replace_policy(&self, files: PolicyFiles) {
        let path = &self.policy;
        let replaced = Loaded::read(files, path, &self.accounts).and_then(|loaded| {
            let (policy, audit) = loaded.into_parts();
            Ok(self.tree.replace_policy(policy, audit)?)
        });
        match replaced {
            Ok(()) => tracing::info!("serving by the policy in {} as it is now", path.display()),
            Err(error) => tracing::error!("the policy in force stays: {error}"),
        }
    }

    /// Asked for in so many words, so it is no matter of log levels.
    fn print_statistics(&self) {
        // In one piece: others may write to the same file. Perhaps nobody hears it any more.
        let _ = writeln!(io::stderr(), "{}", self.subject.statistics_text());
    }
}

//! The stages of a worker, in the order in which it gives up what it was started with. A step consumes the
//! stage before it, and the values can be made by this module alone: another order does not compile. (No doc
//! test shows it: those of a program do not run.)
//!
//! | stage | threads | what the worker has | what is done |
//! |---|---|---|---|
//! | [`Inherited`] | one | privileges and files of its supervisor | log, signals, accounts for policies |
//! | [`Unprivileged`], of a mount | one | the capabilities that serving needs | the source and the session are opened |
//! | [`Confined`] | one | the source alone (not if an ordinary user mounts), and `/dev/fuse` for a mount | the watcher and the control thread start, each with its filter |
//! | [`Serving`] | the server's | the system calls of its filter | requests are parsed |

use super::{
    Duty, PRIVATE_SOURCE, clone_mounts, drop_privileges, enter_private_tree, filter_system_calls,
    is_root, mount_table, needed, own_process, raise_descriptor_limit, set_atime, share,
};
use crate::channel::{Notice, Order, ToParent};
use crate::config::{FilterAction, MountConfig, ServerConfig, ShareConfig};
use crate::control::answer::Subject;
use crate::control::protocol::{Command, escape};
use crate::control::reload::by_supervisor;
use crate::log;
use crate::metrics::answer_scrapers;
use crate::policy_file::PolicyFiles;
use crate::task::start_thread;
use crate::watcher::{Watched, Watcher, WorkerSetup, receive_setup};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountPropagationFlags};
use std::error::Error;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;
use thrufs::session::SessionError;
use thrufs_hostdir::{AuditLog, FileHandles, MountTable, Resources};
use thrufs_policy::Accounts;
use thrufs_sys::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SignalFd};
use thrufs_sys::{cred, proc_fd};
use thrufs_virtio::DeviceError;

pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

pub(crate) struct Inherited {
    supervisor: Arc<ToParent>,
    setup: WorkerSetup,
}

pub(crate) struct Unprivileged {
    worker: Worker,
    /// The socket for [`callers`](crate::callers) queries.
    pub(crate) callers: Option<OwnedFd>,
    /// Of the session: see [`Order::Record`].
    pub(crate) record: Vec<OwnedFd>,
}

pub(crate) struct Confined(Worker);

pub(crate) struct Serving<S> {
    pub(crate) supervisor: Arc<ToParent>,
    pub(crate) server: S,
    _clone: Option<OwnedFd>,
}

struct Worker {
    supervisor: Arc<ToParent>,
    signals: SignalFd,
    control: Option<OwnedFd>,
    metrics: Option<OwnedFd>,
    /// The path of the policy, and the known accounts.
    policy: Option<(PathBuf, Accounts)>,
    filter: (FileHandles, FilterAction),
    /// Of the mounts of the source, which stay while it is open or mounted.
    clone: Option<OwnedFd>,
}

/// Runs `serve` with the message that says what to serve, and reports its error to the supervisor.
pub(crate) fn run(serve: impl FnOnce(Inherited, Order) -> Outcome) -> ExitCode {
    let Ok(supervisor) = ToParent::of_this_process().map(Arc::new) else {
        return ExitCode::FAILURE;
    };
    let Some((setup, message)) = receive_setup(&supervisor) else {
        return ExitCode::FAILURE;
    };
    let inherited = Inherited {
        supervisor: Arc::clone(&supervisor),
        setup,
    };
    let Err(error) = serve(inherited, message) else {
        return ExitCode::SUCCESS;
    };
    // Sent before the exit, which blocked threads may delay.
    let exit_reason = match (error.downcast_ref(), error.downcast_ref()) {
        (Some(SessionError::Stuck(threads)), _) | (_, Some(DeviceError::Stuck(threads))) => {
            Notice::Stuck(*threads)
        }
        _ => Notice::Failed(error.to_string()),
    };
    let _ = supervisor.send(&exit_reason);
    ExitCode::FAILURE
}

impl Inherited {
    /// For a mount; with its policy. Root's worker leaves the files of the host in the next step, because the
    /// session is opened before it.
    pub(crate) fn drop_privileges(
        mut self,
        config: &MountConfig,
    ) -> Outcome<(Unprivileged, Resources)> {
        let file_handles = config.serving.file_handles;
        let worker = self.begin(&config.server, (file_handles, FilterAction::Fail))?;
        raise_descriptor_limit();
        if is_root() {
            // The file system relies on it.
            cred::keep_capabilities_on_setuid()?;
        }
        drop_privileges(needed(file_handles), config.server.pairing)?;
        let resources = worker.load(self.setup.policy)?;
        let unprivileged = Unprivileged {
            worker,
            callers: self.setup.callers,
            record: self.setup.record,
        };
        Ok((unprivileged, resources))
    }

    /// For a share; with the source as seen from within, and the policy.
    pub(crate) fn confine(
        mut self,
        source: OwnedFd,
        config: &ShareConfig,
    ) -> Outcome<(Confined, OwnedFd, Resources)> {
        let filter = (config.serving.file_handles, config.filter);
        let worker = self.begin(&config.server, filter)?;
        let source = share::confine_worker(source, config, &worker.supervisor)?;
        let resources = worker.load(self.setup.policy)?;
        Ok((Confined(worker), source, resources))
    }

    fn begin(
        &mut self,
        server: &ServerConfig,
        filter: (FileHandles, FilterAction),
    ) -> Outcome<Worker> {
        log::begin_in_worker(server)?;
        let _ = rustix::thread::set_name(c"thrufs-worker");
        std::env::set_current_dir("/")?;
        let signals = SignalFd::block_and_open(&[SIGTERM, SIGINT, SIGHUP, SIGUSR1])?;
        // Cached now: later there is neither prctl(2) nor /proc for it, and rustix panics.
        let _ = rustix::param::page_size();
        // For later policies too: /etc/passwd is not visible then.
        let accounts = |path: &PathBuf| Ok((path.clone(), Accounts::read()?));
        let policy: Option<Outcome<_>> = server.policy.as_ref().map(accounts);
        Ok(Worker {
            supervisor: Arc::clone(&self.supervisor),
            signals,
            control: self.setup.control.take(),
            metrics: self.setup.metrics.take(),
            policy: policy.transpose()?,
            filter,
            clone: None,
        })
    }
}

impl Worker {
    fn load(&self, policy: Option<PolicyFiles>) -> Outcome<Resources> {
        let mut resources = Resources::default();
        if let Some((path, accounts)) = &self.policy {
            let files = policy.ok_or("started without its policy")?;
            let (policy, audit) = files.compile(path, accounts)?;
            resources.policy = Some(policy);
            resources.audit_log = AuditLog::new(audit);
        }
        Ok(resources)
    }
}

impl Unprivileged {
    /// Returns the source of root's mount within a clone of its mounts, as far as that is possible. `clone` is
    /// the one that it is in already.
    pub(crate) fn isolate(&mut self, source: OwnedFd, clone: Option<OwnedFd>) -> OwnedFd {
        self.worker.clone = clone;
        if !is_root() || self.worker.clone.is_some() {
            return source;
        }
        let follow = MountPropagationFlags::DOWNSTREAM;
        let cloned = clone_mounts(&source, follow).inspect_err(|errno| {
            tracing::warn!(
                "the worker can leave the source by its descriptors: cannot clone the mounts: {errno}"
            );
        });
        let Ok((inside, clone)) = cloned else {
            return source;
        };
        self.worker.clone = Some(clone);
        inside
    }

    /// Has times of access kept as the options say, in a mount of root's: in the clone, by which all is read.
    pub(crate) fn set_atime(&self, attributes: [MountAttrFlags; 2]) {
        let set = match &self.worker.clone {
            Some(clone) => set_atime(clone, attributes),
            None => Err(Errno::OPNOTSUPP),
        };
        if let (true, Err(errno)) = (is_root(), set) {
            tracing::warn!(
                "times of access are kept as the source is mounted, not as asked: {errno}"
            );
        }
    }

    /// Leaves the files of the host, in a mount of root. On failure (initial RAM disk, a container's filter),
    /// they stay. Returns the mounts as seen from there, if the source is `followed` and among them: then this
    /// is its path on the host.
    pub(crate) fn confine(
        self,
        followed: Option<&Path>,
    ) -> Outcome<(Confined, Option<MountTable>)> {
        let process = followed.map(|_| own_process());
        let clone = self.worker.clone.as_ref();
        let is_private = is_root()
            && enter_private_tree(clone)
                .inspect_err(|(step, error)| {
                    tracing::warn!("the worker sees all files of the host: {step}: {error}");
                })
                .is_ok();
        let source = match (is_private, clone) {
            (true, Some(_)) => Some(Path::new(PRIVATE_SOURCE)),
            (false, None) => followed,
            _ => None,
        };
        let table = process.zip(source).and_then(|(process, source)| {
            process
                .and_then(|process| mount_table(&process, source))
                .map(|table| if is_private { table.private() } else { table })
                .inspect_err(|error| tracing::info!("mounts beneath are not followed: {error}"))
                .ok()
        });
        proc_fd::enter()?;
        Ok((Confined(self.worker), table))
    }
}

impl Confined {
    /// Starts the watcher and the control thread, and filters the system calls of this thread and those that
    /// it starts later.
    pub(crate) fn start<S, W: Watched>(
        self,
        server: S,
        subject: &Arc<Subject>,
        watched: W,
    ) -> io::Result<Serving<S>> {
        let Confined(worker) = self;
        let (file_handles, action) = worker.filter;
        let (sender, outcomes) = channel();
        let watcher = Watcher {
            supervisor: Arc::clone(&worker.supervisor),
            signals: worker.signals,
            subject: Arc::clone(subject),
            policy: worker.policy,
            refused: None,
            outcomes: sender,
            watched,
        };
        let [serving, watching] = W::DUTIES;
        watcher.start(move || filter_system_calls(watching, file_handles, action))?;
        if let Some(socket) = worker.control {
            let (subject, supervisor) = (Arc::clone(subject), Arc::clone(&worker.supervisor));
            start_thread("thrufs-control", move || {
                filter_system_calls(Duty::Controlling, file_handles, FilterAction::Fail);
                W::ANSWER_QUERIES(socket, &mut |command| match command {
                    Command::Reload => {
                        by_supervisor(&outcomes, || supervisor.send(&Notice::Reload))
                    }
                    command => subject.answer(command),
                });
            })?;
        }
        if let Some(listener) = worker.metrics {
            let subject = Arc::clone(subject);
            start_thread("thrufs-metrics", move || {
                filter_system_calls(Duty::Controlling, file_handles, FilterAction::Fail);
                let place = escape(subject.place.as_os_str().as_bytes());
                answer_scrapers(listener, &place, &mut |command| subject.answer(command));
            })?;
        }
        filter_system_calls(serving, file_handles, action);
        Ok(Serving {
            supervisor: worker.supervisor,
            server,
            _clone: worker.clone,
        })
    }
}

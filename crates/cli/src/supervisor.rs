//! The supervisor of a mount: holds `/dev/fuse`, mounts, watches, unmounts.
//!
//! It parses nothing from the mount, so that no client can crash it. One thread waits for events; calls
//! into the mount, which may block on the worker, are [`Task`]s on their own threads. At the end, the
//! mount is gone before the supervisor is. When the worker dies, the connection is aborted, so that
//! pending requests fail, and the mount stays: it returns ENOTCONN until it is unmounted, because
//! programs that continue by path would use the directory beneath. `auto_unmount` unmounts it.

mod death;
mod events;
mod given;
mod resume;
mod stop;
mod stuck;
pub(crate) mod upgrade;

pub(crate) use stop::signal_name;

use crate::auto_unmount::AutoUnmount;
use crate::callers;
use crate::channel::{Notice, Order, ToParent};
use crate::config::{MountConfig, ServerConfig};
use crate::control::reload::{Outcome, Reloaded};
use crate::control::socket::{ControlSocket, Purpose, file_name};
use crate::error::{StartupError, system};
use crate::listening::SocketFile;
use crate::log::Log;
use crate::metrics;
use crate::mount_table;
use crate::mounting::error::MountCommandError;
use crate::mounting::{self, MountTarget};
use crate::policy_file::{PolicyFiles, not_reloaded};
use crate::process::{OWN_PROGRAM, Process, Role};
use crate::systemd;
use crate::task::Task;
use crate::upgrade::check::Upgrade;
use crate::upgrade::request::Request;
use crate::watcher::receive_setup;
use given::Given;
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thrufs::MountError;
use thrufs_sys::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SignalFd};

/// For INIT: the source may be on a slow network.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// For the worker to report its exit reason and exit.
const WORKER_EXIT_TIMEOUT: Duration = Duration::from_secs(2);

struct MountSupervisor {
    config: MountConfig,
    log: Log,
    signals: SignalFd,
    worker: Process,
    stuck: bool,
    /// Closed by supervisor and worker, the connection ends.
    device: Option<OwnedFd>,
    /// Aborts the connection, once mounted and if available.
    abort: Option<OwnedFd>,
    /// Unmounts if this process is killed.
    auto_unmount: Option<AutoUnmount>,
    target: MountTarget,
    /// Until it closes its end.
    launcher: Option<Arc<ToParent>>,
    /// Whether `Ready` was sent to the launcher.
    announced: bool,
    /// A signal while the mount may exist, but not all events of that have arrived.
    early_signal: Option<i32>,
    /// Not published yet.
    control: Vec<ControlSocket>,
    /// Those that are, removed on drop.
    socket_files: Vec<SocketFile>,
    /// For the log.
    metrics_at: Option<String>,
    /// The listening socket for upgrades.
    upgrades: Option<OwnedFd>,
    upgrade: Option<Upgrade>,
    /// Where to reply once this program serves, after an upgrade to it.
    command: Option<OwnedFd>,
    given: Given,
    /// Killed workers of which something may be stuck in the kernel.
    left: Vec<Process>,
    /// The same, of an earlier program of this process.
    left_earlier: Vec<Pid>,
    /// When a worker that is to go on has to have begun.
    begins_until: Option<Instant>,
    /// Otherwise it reloads the policy.
    ends_on_hangup: bool,
}

#[derive(Debug)]
enum MountEvent {
    Signal(i32),
    Worker(Notice),
    WorkerEnded,
    /// It has requests that do not end, and perhaps cannot exit.
    WorkerStuck,
    TaskDone,
    /// The launcher got no reply from the mount, or died while mounting.
    Abandoned,
    Upgrade(Request),
    Deadline,
}

type Mounting = Task<Result<(), MountError>>;

/// The process of a background mount (see [`Role::Supervisor`]).
pub(crate) fn main() -> ExitCode {
    let Ok(launcher) = ToParent::of_this_process() else {
        return ExitCode::FAILURE;
    };
    // Without a terminal's signals. It was just started and leads no group, so this cannot fail.
    let _ = rustix::process::setsid();
    let Some((setup, Order::Serve(config, descriptors))) = receive_setup(&launcher) else {
        return ExitCode::FAILURE;
    };
    let mut descriptors = descriptors.into_iter();
    let Some(place) = descriptors.next() else {
        return ExitCode::FAILURE;
    };
    let (sources, launcher) = (descriptors.collect(), Some(Arc::new(launcher)));
    match run(*config, place, sources, setup.policy, launcher) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Mounts, serves and unmounts. `place` is the mount point, `sources` the source and, if cloned, its
/// mounts. `launcher` receives `Ready` or `Failed`.
pub(crate) fn run(
    config: MountConfig,
    place: OwnedFd,
    sources: Vec<OwnedFd>,
    policy: Option<PolicyFiles>,
    launcher: Option<Arc<ToParent>>,
) -> Result<(), MountCommandError> {
    match MountSupervisor::start(config, place, sources, policy, launcher.clone()) {
        Ok(mut supervisor) => {
            drop(launcher);
            supervisor.announce();
            supervisor.serve()
        }
        Err(error) => {
            let failed = Notice::Failed(error.to_string());
            let is_sent = launcher.is_some_and(|launcher| launcher.send(&failed).is_ok());
            // Without a launcher, the error is logged.
            if is_sent { Ok(()) } else { Err(error) }
        }
    }
}

impl MountSupervisor {
    fn start(
        config: MountConfig,
        place: OwnedFd,
        sources: Vec<OwnedFd>,
        policy: Option<PolicyFiles>,
        launcher: Option<Arc<ToParent>>,
    ) -> Result<MountSupervisor, MountCommandError> {
        let (log, signals) = begin(&config.server)?;
        let make = |purpose| ControlSocket::make_if_possible(&config.server.control, purpose);
        let (queries, listener) = make(Purpose::Queries)?.unzip();
        let upgrades = match config.server.deaths_max {
            0 => None,
            _ => make(Purpose::Upgrades)?,
        };
        let (for_upgrades, upgrades) = upgrades.unzip();
        let metrics = config.server.metrics.as_ref().map(metrics::listen);
        let metrics = metrics.transpose()?;
        let (metrics, (metrics_file, metrics_at)) = metrics
            .map(|it| (Some(it.listener), (it.file, Some(it.at))))
            .unwrap_or_default();
        let privileged = mounting::is_privileged();
        let mut target = MountTarget {
            mountpoint: config.mountpoint.clone(),
            mounted: None,
        };
        let device = if privileged {
            thrufs::mount::open_device()?.0
        } else {
            let device = mounting::mount_unprivileged(&config)?;
            target.mounted = mounting::fuse_on(&config.mountpoint);
            device
        };
        let started = AutoUnmount::start_if_wanted(&config).and_then(|auto_unmount| {
            let mut given = Given::new(&config, sources, [listener, metrics], policy)?;
            let (orders, sources) = given.orders()?;
            let program = OWN_PROGRAM.as_ref();
            let worker = start_worker(program, &config, &device, sources, orders)?;
            Ok((auto_unmount, worker, given))
        });
        let (auto_unmount, worker, given) = started.inspect_err(|_| {
            if !privileged {
                let _ = target.unmount(true);
            }
        })?;
        let mut supervisor = MountSupervisor {
            config,
            log,
            signals,
            worker,
            stuck: false,
            device: Some(device),
            abort: None,
            auto_unmount,
            target,
            launcher,
            announced: false,
            early_signal: None,
            control: queries.into_iter().chain(for_upgrades).collect(),
            socket_files: metrics_file.into_iter().collect(),
            metrics_at,
            upgrades,
            upgrade: None,
            command: None,
            given,
            left: Vec::new(),
            left_earlier: Vec::new(),
            begins_until: None,
            ends_on_hangup: ends_on_hangup(),
        };
        let mut mounting = None;
        match supervisor.mount(place, &mut mounting) {
            Ok(()) => {
                supervisor.publish_control_sockets();
                Ok(supervisor)
            }
            Err(error) => {
                supervisor.abandon(mounting);
                Err(error)
            }
        }
    }

    /// Mounts, unless fusermount3 has, and waits for INIT.
    fn mount(
        &mut self,
        place: OwnedFd,
        mounting: &mut Option<Mounting>,
    ) -> Result<(), MountCommandError> {
        let mut deadline = Instant::now() + START_TIMEOUT;
        if mounting::is_privileged() {
            *mounting = Some(self.begin_mounting(place)?);
        }
        let mut ready = false;
        while mounting.is_some() || !ready {
            match self.next_event(mounting.as_ref().map(AsFd::as_fd), Some(deadline)) {
                MountEvent::TaskDone => {
                    let panicked = || Err(MountError::HelperRun(io::Error::other("panic")));
                    let mounted = mounting.take().and_then(Task::finish);
                    mounted
                        .unwrap_or_else(panicked)
                        .map_err(|error| self.exit_reason().unwrap_or(error.into()))?;
                    self.target.mounted = mounting::fuse_on(&self.config.mountpoint);
                }
                MountEvent::Worker(Notice::Ready) => ready = true,
                MountEvent::Worker(Notice::Failed(why)) => {
                    return Err(MountCommandError::Server(why));
                }
                MountEvent::WorkerEnded => {
                    let said = self.exit_reason();
                    let failed = mounting
                        .take_if(|mounting| mounting.is_done_within(WORKER_EXIT_TIMEOUT))
                        .and_then(Task::finish)
                        .and_then(Result::err);
                    let failed = failed.map(MountCommandError::from);
                    return Err(said.or(failed).unwrap_or(MountCommandError::ServerGone));
                }
                MountEvent::WorkerStuck => {
                    return Err(self.stuck_with(Some(self.worker.id()), false));
                }
                // The mount may exist and be served already: the events are about to arrive. A caller
                // that has seen it wants it unmounted, not the attempt to fail.
                MountEvent::Signal(number @ (SIGTERM | SIGINT)) if self.early_signal.is_none() => {
                    self.early_signal = Some(number);
                    deadline = deadline.min(Instant::now() + WORKER_EXIT_TIMEOUT);
                }
                MountEvent::Signal(SIGHUP) | MountEvent::Worker(Notice::Signalled(SIGHUP))
                    if !self.ends_on_hangup => {}
                MountEvent::Signal(SIGTERM | SIGINT | SIGHUP)
                | MountEvent::Worker(Notice::Signalled(_))
                | MountEvent::Abandoned => return Err(MountCommandError::Interrupted),
                MountEvent::Deadline if self.early_signal.is_some() => {
                    return Err(MountCommandError::Interrupted);
                }
                MountEvent::Deadline => {
                    let mountpoint = self.config.mountpoint.clone();
                    return Err(MountCommandError::NoAnswer(START_TIMEOUT, mountpoint));
                }
                MountEvent::Signal(_) | MountEvent::Worker(_) | MountEvent::Upgrade(_) => {}
            }
        }
        if let Some(bytes) = self.config.serving.max_readahead {
            self.target.set_readahead(bytes);
        }
        self.open_abort_file();
        Ok(())
    }

    fn publish_control_sockets(&mut self) {
        for control in std::mem::take(&mut self.control) {
            let Some(mounted) = &self.target.mounted else {
                tracing::warn!(
                    "no control socket: the mount is not in the mount table (is /proc mounted?)"
                );
                return;
            };
            let published = control.published(file_name(mounted.device));
            let file = published.map(ControlSocket::into_file);
            self.socket_files.extend(file);
        }
    }

    fn begin_mounting(&self, place: OwnedFd) -> Result<Mounting, StartupError> {
        let device = self.device.as_ref();
        let device = device.expect("held until the worker has ended").try_clone();
        let device = device.map_err(system("duplicate the device"))?;
        let config = self.config.clone();
        let task = Task::start(move || mounting::mount(&config, device, place));
        task.map_err(system("start a thread"))
    }

    /// The worker's reason, if it reports one in time: closer to the cause than the kernel's error.
    fn exit_reason(&mut self) -> Option<MountCommandError> {
        let _ = self.worker.channel.send(&Order::Stop);
        let deadline = Instant::now() + WORKER_EXIT_TIMEOUT;
        loop {
            match self.next_event(None, Some(deadline)) {
                MountEvent::Worker(Notice::Failed(why)) => {
                    return Some(MountCommandError::Server(why));
                }
                // An earlier packet may still be queued.
                MountEvent::WorkerEnded => {
                    return match self.worker.channel.receive() {
                        Ok(Some(Notice::Failed(why))) => Some(MountCommandError::Server(why)),
                        _ => None,
                    };
                }
                MountEvent::Deadline => return None,
                _ => {}
            }
        }
    }

    /// Cleans up after a failed mount.
    fn abandon(&mut self, mounting: Option<Mounting>) {
        self.worker.kill();
        if self.worker.has_ended_within(WORKER_EXIT_TIMEOUT) {
            let _ = self.worker.wait();
        }
        self.device = None;
        // A blocked call ends with this process; a successful one is undone.
        let mounted = mounting.and_then(|mounting| mounting.finish_within(WORKER_EXIT_TIMEOUT));
        if let Some(Ok(())) = mounted {
            self.target.mounted = mounting::fuse_on(&self.config.mountpoint);
        }
        let target = self.target.clone();
        if target.mounted.is_some()
            // The path may lead through an autofs that waits for the end of this attempt.
            && let Ok(unmounting) = Task::start(move || target.unmount_by_force())
            && let Some(Err(error)) = unmounting.finish_within(WORKER_EXIT_TIMEOUT)
        {
            tracing::warn!("{error}");
        }
    }

    /// Notifies systemd or the launcher, and detaches from the terminal.
    fn announce(&mut self) {
        let (source, mountpoint) = (&self.config.source, &self.config.mountpoint);
        let mounted = format!("mounted {} on {}", source.display(), mountpoint.display());
        let metrics = self.metrics_at.take();
        let log = || {
            tracing::info!("{mounted}");
            metrics.iter().for_each(|at| tracing::info!("{at}"));
        };
        let Some(launcher) = &self.launcher else {
            log();
            systemd::notify_ready();
            return;
        };
        if let Some(process) = &self.auto_unmount {
            process.send(&Order::Background);
        }
        let left = self.log.leave_the_terminal();
        // Only for the log file: success is silent.
        log();
        let _ = launcher.send(&Notice::Ready);
        // It closes its end when the mount responds, and sends `Stop` if it does not.
        self.announced = true;
        if let Err(error) = left {
            tracing::warn!("{error}");
        }
    }

    fn serve(&mut self) -> Result<(), MountCommandError> {
        if let Some(number) = self.early_signal.take() {
            return self.stop(number);
        }
        loop {
            let waits_for = self.upgrade.as_ref().and_then(Upgrade::waits_for);
            // A copy: it is of this value, which the event changes.
            let task = waits_for.and_then(|task| task.try_clone_to_owned().ok());
            let task = task.as_ref().map(AsFd::as_fd);
            match self.next_event(task, self.begins_until) {
                MountEvent::Signal(SIGUSR1) => {
                    let _ = self.worker.channel.send(&Order::Statistics);
                }
                MountEvent::Signal(SIGHUP) | MountEvent::Worker(Notice::Signalled(SIGHUP))
                    if !self.ends_on_hangup =>
                {
                    let _ = self.reload();
                }
                MountEvent::Worker(Notice::Reload) => {
                    let outcome = self.reload();
                    self.worker.tell(&Order::Reloaded(outcome));
                }
                MountEvent::Signal(number) | MountEvent::Worker(Notice::Signalled(number)) => {
                    return self.stop(number);
                }
                MountEvent::WorkerEnded if self.go_back("ended before it served") => {}
                MountEvent::WorkerEnded if self.resume() => {}
                MountEvent::WorkerEnded => return self.on_worker_exit(),
                MountEvent::WorkerStuck => return self.on_stuck(),
                MountEvent::Abandoned => return self.stop_at_once("the mount does not answer"),
                MountEvent::Worker(Notice::Ready) => self.on_begun(),
                MountEvent::Worker(Notice::Failed(why)) => {
                    tracing::error!("{why}");
                    if let Some(upgrade) = &mut self.upgrade {
                        upgrade.failure = Some(why);
                    }
                }
                MountEvent::Worker(message) => {
                    tracing::debug!(?message, "unexpected worker message");
                }
                MountEvent::Deadline if self.go_back("does not serve in time") => {}
                MountEvent::Deadline => self.on_late_begin(),
                MountEvent::Upgrade(request) => self.begin_upgrade(request),
                MountEvent::TaskDone => self.on_checked(),
            }
        }
    }

    /// Opens the log file again, and reloads the policy. A bad one changes nothing.
    fn reload(&mut self) -> Outcome {
        let log_file = self.log.reopen(&self.config.server);
        if let Some(process) = &self.auto_unmount {
            process.send(&Order::ReopenLog);
        }
        let policy = self.reload_policy().map_err(not_reloaded);
        Reloaded::of(log_file, policy)
    }

    /// Returns whether there is one.
    fn reload_policy(&mut self) -> Result<bool, StartupError> {
        let Some(path) = &self.config.server.policy else {
            return Ok(false);
        };
        let files = PolicyFiles::open(path, &self.config.serving)?;
        self.worker.tell(&files.for_worker()?);
        self.given.policy = Some(files);
        Ok(true)
    }
}

/// Starts the log of a supervisor, and blocks the signals that it reads.
pub(crate) fn begin(server: &ServerConfig) -> Result<(Log, SignalFd), StartupError> {
    begin_with(Log::begin(server)?)
}

/// The same, where an earlier program of this process has begun.
pub(crate) fn begin_again(server: &ServerConfig) -> Result<(Log, SignalFd), StartupError> {
    begin_with(Log::resume(server)?)
}

fn begin_with(log: Log) -> Result<(Log, SignalFd), StartupError> {
    let _ = rustix::thread::set_name(c"thrufs");
    // The working directory must not keep a mount busy.
    std::env::set_current_dir("/").map_err(system("change to /"))?;
    let signals = SignalFd::block_and_open(&[SIGTERM, SIGINT, SIGHUP, SIGUSR1]);
    Ok((log, signals.map_err(system("receive signals"))?))
}

/// Whether SIGHUP ends this process, as of a terminal that goes away: it has a controlling terminal, and was not
/// started with SIGHUP ignored (nohup(1)). A service manager's SIGHUP asks for a reload.
pub(crate) fn ends_on_hangup() -> bool {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    let ignored = mount_table::field::<String>("/proc/self/status".into(), "SigIgn:");
    let ignored = ignored.and_then(|set| u64::from_str_radix(&set, 16).ok());
    rustix::fs::open("/dev/tty", flags, Mode::empty()).is_ok()
        && ignored.is_none_or(|set| set & 1 << (SIGHUP - 1) == 0)
}

/// Starts the worker of a mount, of this program or another. `sources` are as for [`run`]; `orders` come before [`Order::Serve`].
pub(crate) fn start_worker(
    program: &Path,
    config: &MountConfig,
    device: &OwnedFd,
    sources: Vec<OwnedFd>,
    orders: Vec<Order>,
) -> Result<Process, StartupError> {
    let worker = Process::start_program(program, Role::Worker, config.paths())
        .map_err(system("start the worker"))?;
    let about = callers::begin().map_err(system("create a socket for the worker"))?;
    let device = device.try_clone().map_err(system("duplicate the device"))?;
    let all = [device].into_iter().chain(sources).collect();
    let last = [
        Order::CallerQueries(vec![about]),
        Order::Serve(Box::new(config.clone()), all),
    ];
    for message in orders.into_iter().chain(last) {
        let sent = worker.channel.send_setup(&message);
        sent.map_err(system("send to the worker"))?;
    }
    Ok(worker)
}

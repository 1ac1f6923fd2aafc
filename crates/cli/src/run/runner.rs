//! The runner: supervises the worker and the sandbox, and ends as the command ends.

use super::error::RunError;
use super::plan::SandboxPlan;
use super::standard_files;
use crate::channel::{Notice, Order, ToChild};
use crate::config::MountConfig;
use crate::error::system;
use crate::mount_table;
use crate::process::{self, OWN_PROGRAM, Process, ProcessEvent, Role};
use crate::supervisor;
use crate::waiting;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use serde_json::Value;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};
use thrufs_sys::signal::{
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SignalFd, block, unblock,
};

/// Forwarded to the command if another process sent them. Those of the terminal reach it too. Those that stop are
/// blocked alone: the runner stops when the command has. The processes of the sandbox inherit the mask, process 1
/// clears it.
pub(super) const SIGNALS: [i32; 10] = [
    SIGTERM,
    SIGINT,
    SIGHUP,
    SIGQUIT,
    SIGUSR1,
    SIGUSR2,
    libc::SIGCONT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// For the start of the worker, and INIT.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// For the command to end after the worker has died, and for the worker to end after the command.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// From the end of the mount, with which the worker ends, to that of the sandbox.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(1);

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandEnd {
    Exited(i32),
    Killed(i32),
}

pub(super) struct Runner {
    signals: SignalFd,
    sandbox: Child,
    /// A pidfd of it.
    sandbox_ended: OwnedFd,
    channel: ToChild,
    /// Of each directory.
    workers: Vec<Process>,
    /// How many of them serve.
    ready: usize,
    /// A pidfd of the command, once it is started.
    command: Option<OwnedFd>,
    /// Signals between the start of process 1 and that of the command, for the command.
    early: Option<Vec<i32>>,
    /// For process 1.
    plan: Value,
    outcome: Option<Result<CommandEnd, RunError>>,
    /// When the sandbox is killed.
    deadline: Option<Instant>,
}

/// A directory that is served at its own path.
pub(super) struct Served {
    pub(super) config: MountConfig,
    pub(super) source: OwnedFd,
    pub(super) policy: Order,
}

impl Runner {
    /// Starts the sandbox, and the workers when their devices arrive. The first directory is the tree. Of a draft, the
    /// sandbox gets the directory and the lock.
    pub(super) fn start(
        signals: SignalFd,
        plan: &SandboxPlan,
        served: Vec<Served>,
        draft: Vec<OwnedFd>,
        command: &[OsString],
    ) -> Result<Runner, RunError> {
        let (channel, theirs) = ToChild::pair().map_err(system("create a socket"))?;
        let sandbox = process::start_inheriting(Role::Sandbox, &theirs, command);
        let sandbox = sandbox.map_err(system("start the sandbox"))?;
        drop(theirs);
        let sandbox_ended = pidfd_open(Pid::from_child(&sandbox), PidfdFlags::empty())
            .map_err(system("watch the sandbox"))?;
        let plan = serde_json::to_value(plan).map_err(io::Error::from);
        let mut runner = Runner {
            plan: plan.map_err(system("write the plan"))?,
            signals,
            sandbox,
            sandbox_ended,
            channel,
            workers: Vec::new(),
            ready: 0,
            command: None,
            early: None,
            outcome: None,
            deadline: Some(Instant::now() + START_TIMEOUT),
        };
        let begun = runner.begin(served, draft);
        begun.inspect_err(|_| runner.kill_sandbox())?;
        Ok(runner)
    }

    fn begin(&mut self, served: Vec<Served>, draft: Vec<OwnedFd>) -> Result<(), RunError> {
        let send = |message| {
            let sent = self.channel.send(&message);
            sent.map_err(system("send to the sandbox"))
        };
        let mut draft = Some(draft);
        for Served { config, source, .. } in &served {
            let copy = source.try_clone().map_err(system("duplicate the source"))?;
            let of_tree = draft.take().into_iter().flatten();
            let directories = [copy].into_iter().chain(of_tree).collect();
            send(Order::Serve(Box::new(config.clone()), directories))?;
        }
        send(Order::Sandbox(self.plan.clone()))?;
        for directory in served {
            let device = match self.channel.receive() {
                Ok(Some(Notice::Device(mut device))) => device.pop(),
                Ok(Some(Notice::Failed(why))) => return Err(RunError::Sandbox(why)),
                _ => None,
            };
            let Some(device) = device else {
                return Err(RunError::Sandbox("it ended at its start".to_owned()));
            };
            let (sources, policy) = (vec![directory.source], vec![directory.policy]);
            let config = &directory.config;
            let worker =
                supervisor::start_worker(OWN_PROGRAM.as_ref(), config, &device, sources, policy)?;
            self.workers.push(worker);
        }
        Ok(())
    }

    /// Waits for the end of the command, and of all that was started.
    pub(super) fn wait(mut self) -> Result<CommandEnd, RunError> {
        while self.next() {}
        let _ = self.sandbox.wait();
        self.take_last_reports();
        standard_files::take_terminal_back();
        // The mounts are gone with the namespace: the workers end by themselves when all is written.
        let workers = std::mem::take(&mut self.workers);
        workers.into_iter().for_each(|it| self.end_worker(it));
        self.outcome.unwrap_or(Err(RunError::SandboxDied))
    }

    /// Handles one event; returns whether the sandbox is alive.
    fn next(&mut self) -> bool {
        let workers = self.workers.iter().map(Process::sources);
        let workers: Vec<_> = workers.flatten().collect();
        let own = [
            &self.signals.as_fd(),
            &self.channel.as_fd(),
            &self.sandbox_ended.as_fd(),
        ];
        let descriptors = [own.map(|it| Some(*it)).as_slice(), &workers].concat();
        let readable = waiting::readable_of(&descriptors, self.deadline);
        let (&[signal, said, ended], readable) = readable
            .split_first_chunk()
            .expect("one for each descriptor");
        let readable = readable.as_chunks().0.to_vec();
        if signal && let Ok(signal) = self.signals.read() {
            self.on_signal(&signal);
            return true;
        }
        if said {
            match self.channel.receive() {
                Ok(Some(message)) => {
                    self.on_report(message);
                    return true;
                }
                // Closed: the sandbox is about to end.
                _ => self.await_sandbox(),
            }
        }
        if ended {
            return false;
        }
        let mut workers = self.workers.iter_mut().zip(readable).enumerate();
        let event = workers.find_map(|(at, (worker, ready))| Some((at, worker.event(ready)?)));
        if let Some((at, event)) = event {
            self.on_worker(at, event);
            return true;
        }
        let is_over = |deadline| Instant::now() >= deadline;
        if self.deadline.is_some_and(is_over) {
            self.deadline = None;
            self.fail(RunError::NoAnswer(START_TIMEOUT));
            self.kill_sandbox();
        }
        true
    }

    /// A report and the end of the sandbox may come between two looks of one poll(2): the end is seen alone.
    fn take_last_reports(&mut self) {
        let deadline = Some(Instant::now() + END_TIMEOUT);
        while waiting::readable([Some(self.channel.as_fd())], deadline)[0] {
            match self.channel.receive() {
                Ok(Some(Notice::Stopped)) => {}
                Ok(Some(message)) => self.on_report(message),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Waits while the sandbox ends. Unmounting writes what is left: a source that does not answer blocks it,
    /// until a signal gives up.
    fn await_sandbox(&mut self) {
        loop {
            let both = [Some(self.signals.as_fd()), Some(self.sandbox_ended.as_fd())];
            let [signal, ended] = waiting::readable(both, self.deadline);
            if ended || !signal {
                return;
            }
            let gives_up = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];
            if self
                .signals
                .read()
                .is_ok_and(|it| gives_up.contains(&it.number))
            {
                self.workers.iter().for_each(Process::kill);
            }
        }
    }

    fn on_signal(&mut self, signal: &thrufs_sys::signal::Signal) {
        match (&self.command, signal.number) {
            (_, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) => {}
            (Some(command), libc::SIGCONT) => send(command, libc::SIGCONT),
            // The command has got it from the terminal, too.
            (Some(_), _) if signal.by_kernel => {}
            (Some(command), number) => send(command, number),
            (None, number) if let Some(early) = &mut self.early => early.push(number),
            (None, libc::SIGCONT | SIGUSR1 | SIGUSR2) => {}
            (None, number) => {
                self.outcome = Some(Ok(CommandEnd::Killed(number)));
                self.kill_sandbox();
            }
        }
    }

    fn on_report(&mut self, message: Notice) {
        match message {
            Notice::Started(mut command) => {
                let Some(command) = command.pop() else {
                    return;
                };
                for number in self.early.take().into_iter().flatten() {
                    send(&command, number);
                }
                self.command = Some(command);
                self.deadline = None;
            }
            Notice::Stopped => {
                let group = self.command.as_ref().and_then(group_of);
                let lent = group.filter(|_| group == standard_files::foreground());
                stop();
                // SIGCONT is forwarded next.
                if let Some(group) = lent {
                    standard_files::lend_terminal(group);
                }
            }
            Notice::Ended(status) => {
                self.outcome.get_or_insert(Ok(match status {
                    0.. => CommandEnd::Exited(status),
                    _ => CommandEnd::Killed(-status),
                }));
            }
            Notice::NotExecuted(status, why) => self.fail(RunError::NotExecuted(status, why)),
            Notice::Failed(why) => self.fail(RunError::Sandbox(why)),
            other => tracing::debug!(?other, "unexpected message of the sandbox"),
        }
    }

    fn on_worker(&mut self, at: usize, event: ProcessEvent) {
        match event {
            ProcessEvent::Message(Notice::Ready) => {
                self.ready += 1;
                if self.ready < self.workers.len() {
                    return;
                }
                self.early = Some(Vec::new());
                for message in [Order::Served, Order::Sandbox(self.plan.clone())] {
                    let _ = self.channel.send(&message);
                }
            }
            ProcessEvent::Message(Notice::Failed(why)) => {
                self.fail(RunError::Worker(why));
                self.kill_sandbox();
            }
            ProcessEvent::Message(_) => {}
            ProcessEvent::Exiting => self.workers[at].begin_to_end(END_TIMEOUT),
            ProcessEvent::Ended => self.on_worker_death(at),
        }
    }

    /// The command gets ENOTCONN in its directory, and SIGTERM.
    fn on_worker_death(&mut self, at: usize) {
        let mut worker = self.workers.remove(at);
        let status = worker.wait();
        let soon = Some(Instant::now() + UNMOUNT_TIMEOUT);
        if status.as_ref().is_ok_and(ExitStatus::success)
            && waiting::readable([Some(self.sandbox_ended.as_fd())], soon)[0]
        {
            return;
        }
        let status = status.map_or_else(|error| error.to_string(), |it| it.to_string());
        self.fail(RunError::WorkerDied(status));
        match &self.command {
            Some(command) => {
                send(command, SIGTERM);
                send(command, libc::SIGCONT);
                self.deadline = Some(Instant::now() + END_TIMEOUT);
            }
            None => self.kill_sandbox(),
        }
    }

    fn fail(&mut self, error: RunError) {
        self.outcome.get_or_insert(Err(error));
    }

    /// Ends all processes in the sandbox.
    fn kill_sandbox(&mut self) {
        let _ = self.sandbox.kill();
    }

    fn end_worker(&self, mut worker: Process) {
        // Before the command starts nothing is written, and there may be no mount with which the worker ends.
        if self.command.is_none() || !worker.has_ended_within(END_TIMEOUT) {
            let _ = worker.channel.send(&Order::Stop);
            if !worker.has_ended_within(END_TIMEOUT) {
                tracing::warn!("the worker does not end: killing it");
                worker.kill();
                return;
            }
        }
        let _ = worker.wait();
    }
}

/// The process group of a process, by its pidfd.
fn group_of(process: &OwnedFd) -> Option<Pid> {
    let number = mount_table::field(mount_table::own_descriptor(process), "Pid:")?;
    rustix::process::getpgid(Some(Pid::from_raw(number)?)).ok()
}

/// Stops this process, as a shell expects of a job whose command is stopped, until SIGCONT.
fn stop() {
    let _ = unblock(&[libc::SIGTSTP]);
    let _ = kill_process(rustix::process::getpid(), Signal::TSTP);
    let _ = block(&[libc::SIGTSTP]);
}

fn send(process: &OwnedFd, number: i32) {
    if let Some(signal) = Signal::from_named_raw(number) {
        let _ = pidfd_send_signal(process, signal);
    }
}

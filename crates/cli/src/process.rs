//! Starts the processes of a server: this program in another role.
//!
//! No fork(2): it would need unsafe code, and a copy of a multithreaded process can do little. The role
//! is an argument, which ps(1) shows; the rest comes over the [`Channel`].

use crate::channel::{Notice, Order, ToChild};
use crate::log;
use crate::task::start_thread;
use crate::waiting;
use clap::ValueEnum;
use rustix::io::FdFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thrufs_sys::apart::Apart;

/// Extra time for a process whose threads all exit. The kernel may wait: a mount namespace ends with an
/// RCU grace period, which takes seconds on a busy machine.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);
/// Poll interval meanwhile.
const EXIT_INTERVAL: Duration = Duration::from_millis(100);

/// Its argument is `--` and its name, and not in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Holds the device, mounts and unmounts. With the number of a descriptor: goes on as the supervisor that this
    /// process was ([`upgrade`](crate::upgrade)).
    Supervisor,
    /// Whether this program could go on so.
    UpgradeCheck,
    Worker,
    /// Serves one guest.
    ShareWorker,
    /// With the number of a descriptor: goes on as the supervisor of a share that this process was.
    ShareSupervisor,
    /// Unmounts after the supervisor was killed.
    AutoUnmount,
    /// Builds the sandbox of `thrufs run`.
    Sandbox,
    /// Process 1 in it.
    SandboxInit,
}

impl Role {
    pub(crate) fn argument(self) -> String {
        let name = self.to_possible_value().expect("none is left out");
        format!("--{}", name.get_name())
    }

    fn is_worker(self) -> bool {
        matches!(self, Role::Worker | Role::ShareWorker)
    }

    /// Whether it gets its own PID namespace. Only root can create one; an ordinary user's process cannot
    /// affect those of other users.
    fn is_alone(self) -> bool {
        !matches!(
            self,
            Role::Supervisor | Role::ShareSupervisor | Role::UpgradeCheck
        ) && rustix::process::geteuid().is_root()
    }

    pub(crate) fn from_argument(argument: &OsStr) -> Option<Role> {
        Role::from_str(argument.to_str()?.strip_prefix("--")?, false).ok()
    }
}

#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    descriptor: OwnedFd,
    life: Life,
    /// Whether a peer may control it. Its [`Watching`](Notice::Watching) may be on its way.
    pub(crate) is_exposed: bool,
    pub(crate) channel: ToChild,
    /// Relays a worker's log.
    log: Option<JoinHandle<()>>,
}

/// What a worker has done.
#[derive(Debug)]
pub(crate) enum ProcessEvent {
    Message(Notice),
    /// It begins to exit, or has closed its channel.
    Exiting,
    Ended,
}

#[derive(Debug)]
enum Life {
    /// With what is readable when the process begins to exit (see [`watch`](Process::watch)).
    Running(Option<OwnedFd>),
    Exiting {
        since: Instant,
        deadline: Instant,
    },
}

/// Starts it as the first process of a PID namespace, if available: it can neither signal nor inspect
/// other processes.
fn spawn_alone(mut command: Command) -> io::Result<Child> {
    // After unshare(CLONE_NEWPID), a thread can no longer start threads: this one is temporary.
    let thread = start_thread("thrufs-start", move || {
        if let Err(errno) = thrufs_sys::cred::unshare_process_namespace() {
            tracing::warn!(
                "the worker sees other processes: cannot create a PID namespace: {errno}"
            );
        }
        command.spawn()
    })?;
    let started = thread.join();
    started.map_err(|_| io::Error::other("the thread that starts a process panicked"))?
}

/// The running program, even if its file was replaced.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

/// `descriptors`: its end of the channel, and of a worker its log.
fn spawn(
    program: &Path,
    role: Role,
    paths: [&Path; 2],
    descriptors: Vec<OwnedFd>,
) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.arg0("thrufs").arg(role.argument()).args(paths);
    let mut descriptors = descriptors.into_iter();
    if let Some(theirs) = descriptors.next() {
        command.stdin(theirs);
    }
    if let Some(pipe) = descriptors.next() {
        command.stdout(pipe.try_clone()?).stderr(pipe);
        // Without the terminal's signals: Ctrl-Z would stop it while its callers go on.
        command.process_group(0);
        let variables = std::env::vars_os().filter(|(name, _)| is_for_workers(name));
        command.env_clear().envs(variables);
    }
    match role.is_alone() {
        true => spawn_alone(command),
        false => command.spawn(),
    }
}

/// A pidfd of the calling thread (Linux 6.9).
///
/// # Errors
///
/// EINVAL on an older kernel.
pub(crate) fn this_thread() -> io::Result<OwnedFd> {
    // rustix has no PIDFD_THREAD.
    let flags = PidfdFlags::from_bits_retain(libc::PIDFD_THREAD);
    Ok(pidfd_open(rustix::thread::gettid(), flags)?)
}

/// Whether it is read by this program, Rust or the C library. Others may hold secrets of whoever started it.
fn is_for_workers(variable: &OsStr) -> bool {
    let is_so = |prefix: &&str| variable.as_encoded_bytes().starts_with(prefix.as_bytes());
    let known = ["THRUFS_", "RUST_", "LD_", "GLIBC_", "MALLOC_", "LLVM_"];
    known.iter().any(is_so)
}

impl Process {
    /// The number of its [`sources`](Self::sources).
    pub(crate) const SOURCES: usize = 3;

    pub(crate) fn start(role: Role, paths: [&Path; 2]) -> io::Result<Process> {
        Process::start_program(OWN_PROGRAM.as_ref(), role, paths)
    }

    /// As [`start`](Self::start), of another program.
    pub(crate) fn start_program(
        program: &Path,
        role: Role,
        paths: [&Path; 2],
    ) -> io::Result<Process> {
        Process::start_by(role, |descriptors| spawn(program, role, paths, descriptors))
    }

    /// As [`start_program`](Self::start_program), where no descriptor of a peer is open.
    pub(crate) fn start_apart(
        apart: &mut Apart,
        program: &Path,
        role: Role,
        paths: [&Path; 2],
    ) -> io::Result<Process> {
        let [program, one, other] = [program, paths[0], paths[1]].map(Path::to_owned);
        Process::start_by(role, |descriptors| {
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            apart.call(&descriptors, move |them| {
                spawn(&program, role, [&one, &other], them)
            })?
        })
    }

    fn start_by(
        role: Role,
        spawn: impl FnOnce(Vec<OwnedFd>) -> io::Result<Child>,
    ) -> io::Result<Process> {
        let (channel, theirs) = ToChild::pair()?;
        let pipe = role.is_worker().then(|| pipe_with(PipeFlags::CLOEXEC));
        let (pipe, log) = pipe.transpose()?.unzip();
        let mut child = spawn([theirs].into_iter().chain(log).collect())?;
        let id = Pid::from_child(&child);
        let started = pidfd_open(id, PidfdFlags::empty()).map_err(io::Error::from);
        let started = started.and_then(|descriptor| {
            let relay = |pipe| log::relay(pipe, descriptor.try_clone()?);
            let log = pipe.map(relay).transpose()?;
            Ok((descriptor, log))
        });
        let (descriptor, log) = started.inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;
        Ok(Process {
            child,
            descriptor,
            life: Life::Running(None),
            is_exposed: false,
            channel,
            log,
        })
    }

    pub(crate) fn ended(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Watches a thread: whatever ends the process ends all its threads, but the process remains while
    /// one is blocked in the kernel.
    pub(crate) fn watch(&mut self, mut thread: Vec<OwnedFd>) {
        if let Life::Running(watched) = &mut self.life {
            *watched = thread.pop();
        }
    }

    /// Sends without waiting. A process that does not take its messages is killed; the end of a dead one is
    /// handled later.
    pub(crate) fn tell(&self, message: &Order) {
        let sent = self.channel.send(message);
        if sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            tracing::error!(
                process = self.id(),
                "a worker does not take its messages: killing it"
            );
            self.kill();
        }
    }

    /// What to wait for, until [`event`](Self::event). The channel is the last, so that poll(2) finds the
    /// messages that were sent before the end.
    pub(crate) fn sources(&self) -> [Option<BorrowedFd<'_>>; Process::SOURCES] {
        let (watched, channel) = match &self.life {
            Life::Running(watched) => (watched.as_ref(), Some(self.channel.as_fd())),
            Life::Exiting { .. } => (None, None),
        };
        [watched.map(AsFd::as_fd), Some(self.ended()), channel]
    }

    /// The next event, given which of the [`sources`](Self::sources) are readable. Messages come before the
    /// end.
    pub(crate) fn event(
        &mut self,
        [exiting, ended, said]: [bool; Process::SOURCES],
    ) -> Option<ProcessEvent> {
        if said {
            let received = match self.is_exposed {
                true => {
                    let is_watched = !matches!(self.life, Life::Running(None));
                    self.channel.receive_from_peer(is_watched)
                }
                false => self.channel.receive(),
            };
            match received {
                Ok(Some(Notice::Watching(thread))) => {
                    self.watch(thread);
                    return None;
                }
                Ok(Some(message)) => return Some(ProcessEvent::Message(message)),
                // It has closed its end without exiting, or sends garbage: it will not be used again.
                Ok(None) | Err(_) => self.kill(),
            }
        }
        if ended {
            return Some(ProcessEvent::Ended);
        }
        (exiting || said).then_some(ProcessEvent::Exiting)
    }

    /// The process is exiting: starts its time limit.
    pub(crate) fn begin_to_end(&mut self, time: Duration) {
        thrufs_sys::sched::hurry(self.id());
        let since = Instant::now();
        let deadline = since + time;
        self.life = Life::Exiting { since, deadline };
    }

    /// The deadline of its exit.
    pub(crate) fn end_deadline(&self) -> Option<Instant> {
        match self.life {
            Life::Running(_) => None,
            Life::Exiting { deadline, .. } => Some(deadline),
        }
    }

    /// Whether its deadline has passed. A process of which all threads exit gets more time.
    pub(crate) fn is_stuck(&mut self) -> bool {
        let now = Instant::now();
        let Life::Exiting { since, deadline } = &mut self.life else {
            return false;
        };
        if now < *deadline {
            return false;
        }
        *deadline = now + EXIT_INTERVAL;
        since.elapsed() > EXIT_TIMEOUT || !is_exiting(self.id())
    }

    /// Whether it ends within this time.
    pub(crate) fn has_ended_within(&mut self, time: Duration) -> bool {
        self.begin_to_end(time);
        loop {
            if waiting::readable([Some(self.ended())], self.end_deadline())[0] {
                return true;
            }
            if self.is_stuck() {
                return false;
            }
        }
    }

    /// Whether what is left of a killed process waits in the kernel for something else.
    pub(crate) fn only_sleeps(&self) -> bool {
        all_threads(self.id(), sleeps_or_has_ended)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&self) {
        let _ = pidfd_send_signal(&self.descriptor, Signal::KILL);
    }

    /// Waits until it has ended and its log is relayed. May block for ever, unless it [has
    /// ended](ProcessEvent::Ended).
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait();
        if let Some(log) = self.log.take() {
            let _ = log.join();
        }
        status
    }
}

/// Starts a process of a sandbox, which keeps the standard files, the working directory and the
/// environment. Its arguments are the number of `channel`, `--` and the command.
pub(crate) fn start_inheriting(
    role: Role,
    channel: impl AsFd,
    command: &[OsString],
) -> io::Result<Child> {
    // Inherited by this child alone, if no other thread starts one now.
    let channel = channel.as_fd().try_clone_to_owned()?;
    rustix::io::fcntl_setfd(&channel, FdFlags::empty())?;
    let mut child = Command::new(OWN_PROGRAM);
    child
        .arg0("thrufs")
        .arg(role.argument())
        .arg(channel.as_raw_fd().to_string())
        .arg("--")
        .args(command);
    child.spawn()
}

/// Starts this or another program with a socket as standard input, and without other standard files.
pub(crate) fn start_with_socket(program: &Path, role: Role, socket: OwnedFd) -> io::Result<Child> {
    let mut child = Command::new(program);
    child.arg0("thrufs").arg(role.argument()).stdin(socket);
    child.stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// Whether all threads of a process have PF_EXITING set.
fn is_exiting(process: u32) -> bool {
    all_threads(process, |stat| {
        flags_of(stat).is_some_and(|flags| flags & PF_EXITING != 0)
    })
}

/// Whether this holds for `stat` of all threads of a process that have not ended.
fn all_threads(process: u32, holds: impl Fn(&str) -> bool) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else {
        return true;
    };
    // An unreadable one has ended.
    let mut stats = threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    stats.all(|stat| holds(&stat))
}

/// The state is the first field after the name: a thread that has ended, or that sleeps in the kernel and hears no
/// signal.
fn sleeps_or_has_ended(stat: &str) -> bool {
    let fields = stat.rsplit_once(") ");
    fields.is_some_and(|(_, fields)| fields.starts_with(['D', 'Z', 'X']))
}

/// `include/linux/sched.h`
const PF_EXITING: u64 = 0x4;

/// Flags are the seventh field after the name, which may contain parentheses.
fn flags_of(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(program: &str, argument: &str) -> Child {
        Command::new(program).arg(argument).spawn().unwrap()
    }

    #[test]
    fn exiting_process_is_distinguished_from_a_running_one() {
        let mut working = start("sleep", "60");
        assert!(!is_exiting(working.id()));
        working.kill().unwrap();
        // A zombie until waited for.
        let ends = pidfd_open(Pid::from_child(&working), PidfdFlags::empty()).unwrap();
        assert_eq!(waiting::readable([Some(ends.as_fd())], None), [true]);
        assert!(is_exiting(working.id()));
        working.wait().unwrap();
    }

    #[test]
    fn names_with_parentheses_hide_no_flags() {
        let stat = "7 (a) (b) Z 1 7 7 0 -1 4228108 0 0";
        assert_eq!(flags_of(stat), Some(4_228_108));
        assert!(sleeps_or_has_ended(stat) && !sleeps_or_has_ended("7 (a) D) R 1 7"));
        assert_eq!(flags_of("7 (a"), None);
    }
}

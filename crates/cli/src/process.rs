//! Starting the processes that a server is made of: this program again, in another role.
//!
//! There is no fork here: a copy of a process that has threads can do little, and needs unsafe code
//! for it. The role stands in the arguments, where ps(1) shows it; everything else comes over the
//! [`Channel`].

use crate::channel::Channel;
use crate::log;
use crate::task::start_thread;
use crate::waiting;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a process may take beyond its time whose threads are all on their way out. The kernel waits for
/// others there: a mount namespace ends with a grace period of RCU, on a busy machine that is seconds.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);
/// How often it is looked at meanwhile.
const EXIT_INTERVAL: Duration = Duration::from_millis(100);

/// What a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Holds the device, mounts and unmounts.
    Supervisor,
    /// Parses and serves.
    Worker,
    /// Parses and serves what one guest asks.
    ShareWorker,
    /// Takes a mount away whose supervisor was killed.
    AutoUnmount,
}

impl Role {
    const ALL: [Role; 4] = [
        Role::Supervisor,
        Role::Worker,
        Role::ShareWorker,
        Role::AutoUnmount,
    ];

    /// The argument that says it. Not for people: it is in no help.
    const fn argument(self) -> &'static str {
        match self {
            Role::Supervisor => "--supervisor",
            Role::Worker => "--worker",
            Role::ShareWorker => "--share-worker",
            Role::AutoUnmount => "--auto-unmount",
        }
    }

    /// Whether it is to see no process but itself. Only root can have that; an ordinary user's processes
    /// can do nothing to those of others.
    fn is_alone(self) -> bool {
        self != Role::Supervisor && rustix::process::geteuid().is_root()
    }

    /// The role that a first argument says.
    pub(crate) fn from_argument(argument: &std::ffi::OsStr) -> Option<Role> {
        Role::ALL
            .into_iter()
            .find(|role| argument == role.argument())
    }
}

/// A process that was started.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// Readable when it has ended.
    descriptor: OwnedFd,
    /// Readable when the process is ending (see [`watch`](Self::watch)).
    watched: Option<OwnedFd>,
    /// Since when it is ending, and until when it may.
    ending: Option<(Instant, Instant)>,
    pub(crate) channel: Channel,
    /// Passes on what a worker logs.
    log: Option<JoinHandle<()>>,
}

/// Starts it as the first process of a process namespace of its own, where that can be had: there it can
/// name no other process, to send it a signal or to look at it.
fn spawn_alone(mut command: Command) -> io::Result<Child> {
    // A thread whose children are elsewhere can start no more threads: it is one made for this.
    let thread = start_thread("thrufs-start", move || {
        if let Err(errno) = thrufs_sys::cred::unshare_process_namespace() {
            tracing::warn!(
                "the worker sees other processes: cannot create a PID namespace: {errno}"
            );
        }
        command.spawn()
    })?;
    thread.join().unwrap_or_else(|_| {
        Err(io::Error::other(
            "the thread that starts a process panicked",
        ))
    })
}

/// A descriptor of the calling thread, readable when that has ended (Linux 6.9).
///
/// # Errors
///
/// EINVAL on an older kernel.
pub(crate) fn this_thread() -> io::Result<OwnedFd> {
    // PIDFD_THREAD, which rustix has not among these.
    let flags = PidfdFlags::from_bits_retain(libc::PIDFD_THREAD);
    Ok(pidfd_open(rustix::thread::gettid(), flags)?)
}

impl Process {
    /// Starts this program in `role`, for what these paths name.
    ///
    /// # Errors
    ///
    /// No descriptors, no processes.
    pub(crate) fn start(role: Role, paths: [&Path; 2]) -> io::Result<Process> {
        let (channel, theirs) = Channel::pair()?;
        // The file that is running, even when another has taken its name since.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("thrufs")
            .arg(role.argument())
            .args(paths)
            .stdin(Stdio::from(theirs));
        let mut log = None;
        if matches!(role, Role::Worker | Role::ShareWorker) {
            let (pipe, relay) = log::relay()?;
            command.stdout(pipe.try_clone()?).stderr(pipe);
            log = Some(relay);
        }
        let mut child = if role.is_alone() {
            spawn_alone(command)?
        } else {
            let child = command.spawn();
            // It has the pipe for the log.
            drop(command);
            child?
        };
        let descriptor = match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(descriptor) => descriptor,
            Err(errno) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(errno.into());
            }
        };
        Ok(Process {
            child,
            descriptor,
            watched: None,
            ending: None,
            channel,
            log,
        })
    }

    /// Readable when it has ended.
    pub(crate) fn ended(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Takes the end of this thread for the end of the process. Whatever ends the process ends all
    /// threads, but it has not ended as long as one waits in the kernel for what cannot be given up.
    pub(crate) fn watch(&mut self, thread: OwnedFd) {
        self.watched = Some(thread);
    }

    /// Readable when it is ending, until that is acted upon.
    pub(crate) fn ending(&self) -> Option<BorrowedFd<'_>> {
        self.watched.as_ref().map(AsFd::as_fd)
    }

    /// It is ending, for which it has this time from now on.
    pub(crate) fn begin_to_end(&mut self, time: Duration) {
        self.watched = None;
        thrufs_sys::sched::hurry(self.id());
        let now = Instant::now();
        self.ending = Some((now, now + time));
    }

    /// Until when it may be ending, once it is.
    pub(crate) fn end_deadline(&self) -> Option<Instant> {
        self.ending.map(|(_, deadline)| deadline)
    }

    /// Whether its time to end is over. One that has nothing to do any more but to go gets more.
    pub(crate) fn is_stuck(&mut self) -> bool {
        let now = Instant::now();
        let Some((since, deadline)) = &mut self.ending else {
            return false;
        };
        if now < *deadline {
            return false;
        }
        *deadline = now + EXIT_INTERVAL;
        since.elapsed() > EXIT_TIMEOUT || !is_exiting(self.id())
    }

    /// Whether it ends within this time, now that it is ending.
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

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it by force. It may have ended already.
    pub(crate) fn kill(&self) {
        let _ = pidfd_send_signal(&self.descriptor, Signal::KILL);
    }

    /// Waits until it has ended, which may be never, and what it logged has been passed on.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait();
        if let Some(log) = self.log.take() {
            let _ = log.join();
        }
        status
    }
}

/// Whether all threads of a process are on their way out: none carries anything out any more.
fn is_exiting(process: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else {
        return true;
    };
    // One that cannot be read has gone meanwhile.
    let mut stats = threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    stats.all(|stat| flags_of(&stat).is_some_and(|flags| flags & PF_EXITING != 0))
}

/// In the kernel's `include/linux/sched.h`: set when a thread begins to exit.
const PF_EXITING: u64 = 0x4;

/// The flags in a thread's `stat`: the seventh field after its name, which stands in parentheses and may hold
/// some.
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
    fn who_goes_is_told_from_who_is_at_work() {
        let mut working = start("sleep", "60");
        assert!(!is_exiting(working.id()));
        working.kill().unwrap();
        // Not waited for, it is there until then.
        let ends = pidfd_open(Pid::from_child(&working), PidfdFlags::empty()).unwrap();
        assert_eq!(waiting::readable([Some(ends.as_fd())], None), [true]);
        assert!(is_exiting(working.id()));
        working.wait().unwrap();
    }

    #[test]
    fn names_with_parentheses_hide_no_flags() {
        let stat = "7 (a) (b) Z 1 7 7 0 -1 4228108 0 0";
        assert_eq!(flags_of(stat), Some(4_228_108));
        assert_eq!(flags_of("7 (a"), None);
    }
}

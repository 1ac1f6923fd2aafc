//! Starting the processes that a server is made of: this program again, in another role.
//!
//! There is no fork here: a copy of a process that has threads can do little, and needs unsafe code
//! for it. The role stands in the arguments, where ps(1) shows it; everything else comes over the
//! [`Channel`].

use crate::channel::Channel;
use crate::waiting;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

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
    pub(crate) channel: Channel,
}

/// Starts it as the first process of a process namespace of its own, where that can be had: there it can
/// name no other process, to send it a signal or to look at it.
fn spawn_alone(mut command: Command) -> io::Result<Child> {
    // A thread whose children are elsewhere can start no more threads: it is one made for this.
    let thread = std::thread::Builder::new()
        .name("thrufs-start".to_owned())
        .spawn(move || {
            if let Err(errno) = thrufs_sys::cred::unshare_process_namespace() {
                tracing::warn!(
                    "the worker can name other processes: no process namespace: {errno}"
                );
            }
            command.spawn()
        })?;
    thread
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the thread that starts a process ended")))
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
        let mut child = if role.is_alone() {
            spawn_alone(command)?
        } else {
            command.spawn()?
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
            channel,
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

    /// Whether it ends within this time, now that it is ending.
    pub(crate) fn has_ended_within(&mut self, time: Duration) -> bool {
        self.watched = None;
        thrufs_sys::sched::hurry(self.id());
        waiting::readable([Some(self.ended())], Some(Instant::now() + time))[0]
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it by force. It may have ended already.
    pub(crate) fn kill(&self) {
        let _ = pidfd_send_signal(&self.descriptor, Signal::KILL);
    }

    /// Waits until it has ended, which may be never.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

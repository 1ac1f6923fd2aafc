//! The transport that a session uses, and why it is not another one.

use rustix::io::Errno;
use std::fmt;

/// The transport that a session uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// `/dev/fuse`: it was asked for, or io_uring is not used for this reason.
    Dev(Option<UringRefusal>),
    /// io_uring.
    Uring {
        /// Threads that serve queues.
        threads: usize,
        /// Queues of the kernel.
        queues: usize,
        /// See [`UringConfig::depth`](crate::UringConfig::depth).
        depth: u16,
    },
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Carrier::Dev(None) => f.write_str("/dev/fuse"),
            Carrier::Dev(Some(why)) => write!(f, "/dev/fuse (no io_uring: {why})"),
            Carrier::Uring {
                threads,
                queues,
                depth,
            } => write!(
                f,
                "io_uring: {queues} queues, {threads} threads, depth {depth}"
            ),
        }
    }
}

/// Why requests do not arrive over io_uring, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UringRefusal {
    /// On one CPU, io_uring is not faster.
    #[error("it is no faster with one CPU; the option transport=uring uses it anyway")]
    OneCpu,
    /// The number of queues is unknown.
    #[error("the number of possible CPUs is unknown (/sys/devices/system/cpu/possible)")]
    NoCpuCount,
    /// The process may not create rings.
    #[error(
        "this process may not use io_uring ({0}): see the sysctl kernel.io_uring_disabled and, in a \
         container, its seccomp profile"
    )]
    Forbidden(Errno),
    /// Creating a ring failed.
    #[error("cannot create a ring ({0}): see the limits on open files and locked memory (ulimit)")]
    NoRing(Errno),
    /// Another process is to go on with the session if this one dies ([`Session::journaled`]). The kernel leaves
    /// requests that went over io_uring with a dead process.
    ///
    /// [`Session::journaled`]: crate::Session::journaled
    #[error("with resume=, because requests over it are lost when the server is killed")]
    Journal,
    /// The kernel's INIT did not offer it.
    #[error(
        "the kernel does not offer it: Linux 6.14 does when Y is written to \
         /sys/module/fuse/parameters/enable_uring"
    )]
    NotOffered,
    /// INIT agreed on it, and the kernel refused a queue.
    #[error("the kernel refused a queue ({0})")]
    Refused(Errno),
    /// Starting a thread or allocating memory failed.
    #[error("cannot start a thread or allocate memory ({0})")]
    NoThread(Errno),
}

impl UringRefusal {
    /// The refusal for an error of creating a ring.
    pub(crate) fn of_setup(errno: Errno) -> UringRefusal {
        match errno {
            Errno::PERM | Errno::ACCESS | Errno::NOSYS => UringRefusal::Forbidden(errno),
            _ => UringRefusal::NoRing(errno),
        }
    }
}

//! Which transport carries the requests of a session, and why not another.

use rustix::io::Errno;
use std::fmt;
use std::num::{NonZeroU16, NonZeroUsize};

/// How requests shall come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Transport {
    /// By io_uring where it can be had and is not known to be slower; else by `/dev/fuse`.
    #[default]
    Auto,
    /// By io_uring where it can be had (Linux 6.14), else by `/dev/fuse`.
    Uring,
    /// By `/dev/fuse`.
    Dev,
}

/// How requests are served that come by io_uring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UringConfig {
    /// How many of the kernel's queues, of which there is one for each possible CPU, one thread
    /// serves. One unless given, more where there are very many CPUs.
    pub queues_per_thread: Option<NonZeroUsize>,
    /// How many requests of one queue a thread has in hand at once; further ones wait in the kernel.
    /// Eight unless given; one where requests may sleep unexpectedly
    /// ([`Negotiation::set_prompt`](crate::Negotiation::set_prompt)): a thread that sleeps would
    /// hold up the others that it has.
    pub depth: Option<NonZeroU16>,
}

/// How the requests of a session come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// By `/dev/fuse`, because nothing else was asked for, or for this reason.
    Dev(Option<UringRefusal>),
    /// By io_uring.
    Uring {
        /// The threads that wait for them.
        threads: usize,
        /// The queues of the kernel.
        queues: usize,
        /// See [`UringConfig::depth`].
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

/// Why requests do not come by io_uring, and what can be done about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UringRefusal {
    /// One CPU: there it wins nothing.
    #[error("it is no faster with one CPU; --transport=uring forces it")]
    OneCpu,
    /// The number of queues is not known.
    #[error("the number of possible CPUs is unknown (/sys/devices/system/cpu/possible)")]
    NoCpuCount,
    /// Rings are forbidden.
    #[error(
        "this process may not use io_uring ({0}): see the sysctl kernel.io_uring_disabled and, in a \
         container, its seccomp profile"
    )]
    Forbidden(Errno),
    /// No rings were to be had.
    #[error("cannot create a ring ({0}): see the limits on open files and locked memory (ulimit)")]
    NoRing(Errno),
    /// INIT did not offer it.
    #[error(
        "the kernel does not offer it: Linux 6.14 does when Y is written to \
         /sys/module/fuse/parameters/enable_uring"
    )]
    NotOffered,
    /// It was agreed on, and then refused.
    #[error("the kernel refused a queue ({0})")]
    Refused(Errno),
    /// A thread or memory was not to be had.
    #[error("cannot start a thread or allocate memory ({0})")]
    NoThread(Errno),
}

impl UringRefusal {
    /// What the failure to make a ring means.
    pub(crate) fn of_setup(errno: Errno) -> UringRefusal {
        match errno {
            Errno::PERM | Errno::ACCESS | Errno::NOSYS => UringRefusal::Forbidden(errno),
            _ => UringRefusal::NoRing(errno),
        }
    }
}

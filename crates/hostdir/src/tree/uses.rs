//! The opens of an inode, as far as they are common to all: data path, registration, filter. Which path is
//! chosen, and why, is decided by [`files`](crate::files), under the inode's lock.

use crate::filter::Filter;
use parking_lot::{Mutex, MutexGuard};
use std::fmt;
use std::sync::Arc;
use thrufs::{Backing, BackingId, Errno, Result};
use thrufs_policy::{DataPath, FilePath};

/// The opens of an inode; `None` if it is not open. The lock orders them.
#[derive(Default)]
pub(crate) struct Uses(Mutex<Option<Box<Use>>>);

impl Uses {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Box<Use>>> {
        self.0.lock()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.lock().is_some()
    }

    /// Whether it is open, and its opens are so.
    pub(crate) fn is_some_and(&self, are: impl FnOnce(&Use) -> bool) -> bool {
        self.lock().as_deref().is_some_and(are)
    }

    /// The filter, if the open file is redacted.
    pub(crate) fn filter(&self) -> Option<Arc<Filter>> {
        self.lock().as_ref()?.filter.clone()
    }

    /// As [`Use::is_written_by_kernel`], for who reads events: an open does, which has
    /// locked its inode. False while somebody opens it.
    pub(crate) fn are_surely_written_by_kernel(&self) -> bool {
        let uses = self.0.try_lock();
        let uses = uses.as_ref().and_then(|uses| uses.as_ref());
        uses.is_some_and(|it| it.is_written_by_kernel())
    }
}

/// What the opens have in common.
#[derive(Debug)]
pub(crate) struct Use {
    pub(crate) path: DataPath,
    pub(crate) obstacle: Option<Obstacle>,
    pub(crate) backing: Option<Arc<Backing>>,
    pub(crate) filter: Option<Arc<Filter>>,
    pub(crate) opens: u32,
    pub(crate) writable_opens: u32,
    /// Whether an open was answered so that it has no cache: one that has would write back over what it writes.
    pub(crate) is_unmapped: bool,
    /// Those of execve(2), which end with the last process that runs the program.
    pub(crate) executing_opens: u32,
    /// How often an fsync(2) said that data could not be written back, and with which error last.
    pub(crate) sync_errors: (u32, Errno),
}

impl Use {
    /// Whether an open with this path may join. Fails with `EBUSY` if it would see what the policy now
    /// redacts, because the earlier opens do.
    pub(crate) fn admits(&self, wanted: &FilePath) -> Result<()> {
        match wanted.redaction {
            Some(_) if self.filter.is_none() => Err(Errno::EBUSY),
            _ => Ok(()),
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.opens > 1
    }

    pub(crate) fn has_writers(&self) -> bool {
        self.writable_opens > 0
    }

    /// Whether the kernel above may change the file itself, by stores through a map without an event.
    pub(crate) fn is_written_by_kernel(&self) -> bool {
        self.path == DataPath::Passthrough && self.has_writers()
    }

    pub(crate) fn backing(&self) -> Option<BackingId> {
        self.backing.as_ref().map(|backing| backing.id())
    }
}

/// Why the kernel does not use a lower file itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    TurnedOff,
    OpenedByKernel,
    Rule,
    /// The kernel does not combine passthrough with the writeback cache.
    Writeback,
    /// The kernel does not support it.
    Kernel,
    /// Registering needs CAP_SYS_ADMIN in the initial user namespace.
    Privilege,
    /// Its file system reports errors and writes back on close(2), which the kernel does not pass on for a
    /// backing file.
    Remote,
    /// Its file system is stacked deeper than the source's.
    Stacked,
    /// It is append-only, which the kernel does not enforce for a file that is also read.
    AppendOnly,
    Refused(Errno),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Obstacle::TurnedOff => "passthrough is off (nopassthrough, or a share)",
            Obstacle::OpenedByKernel => "the kernel opens files by itself (opens=)",
            Obstacle::Rule => "a rule of the policy",
            Obstacle::Writeback => "the kernel has no passthrough together with writeback",
            Obstacle::Kernel => {
                "the kernel has no passthrough (Linux 6.9 with CONFIG_FUSE_PASSTHROUGH has)"
            }
            Obstacle::Privilege => {
                "registering backing files requires CAP_SYS_ADMIN in the initial user namespace"
            }
            Obstacle::Remote => "the file system beneath does part of its work at close(2)",
            Obstacle::Stacked => "the file system beneath is stacked on others too deep",
            Obstacle::AppendOnly => "append-only files are checked by the server",
            Obstacle::Refused(error) => return write!(f, "the kernel refused: {error}"),
        })
    }
}

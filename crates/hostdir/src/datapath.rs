//! By which way the data of an open file go.
//!
//! A file is either used by the kernel directly (*passthrough*), read and written by us with the
//! kernel's page cache above (*cached*), or without it (*direct*). The kernel demands that all opens
//! of an inode that exist at the same time go the same way, and that those that go through name the
//! same registration; a caller whose open breaks that gets EIO. So the way is chosen when a file is
//! opened that nobody has open, kept with the inode, and joined by every open until the last one
//! is released.
//!
//! **Who may touch what.** [`Use`] lies in its inode under a lock, which is held while the way is
//! chosen and the file registered: opens of one inode wait for each other, nothing else does. The
//! kernel lets go of its side of an open *before* it sends RELEASE, and takes hold of it *after* OPEN
//! was answered. So as long as an open counts from before its answer to its RELEASE, we never count
//! fewer than the kernel, and never change the way under an open file.
//!
//! **Registrations** (backing ids) live with the inode's descriptor, from which they are made: under
//! the same budget, and dropped with it. That spares a file that is opened again and again all calls
//! but one. An open holds its registration whatever becomes of the descriptor.

use crate::host::Host;
use crate::inode::Inode;
use crate::mounts::LowerMount;
use parking_lot::MutexGuard;
use rustix::fs::{AtFlags, Statx, StatxAttributes};
use std::fmt;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use thrufs::{Backing, BackingId, Backings, Errno, Features, Result};
use thrufs_abi::InitFlags;

/// By which way the data of a file go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DataPath {
    /// The kernel uses the lower file itself.
    Passthrough,
    /// Through the kernel's page cache; what it lacks is read by us, what is written comes to us.
    Cached,
    /// Every read and write comes to us.
    Direct,
}

impl fmt::Display for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DataPath::Passthrough => "passthrough",
            DataPath::Cached => "cached",
            DataPath::Direct => "direct",
        })
    }
}

/// Why a file does not go straight through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Nobody wants it to.
    TurnedOff,
    /// The writeback cache was asked for, which the kernel does not combine.
    Writeback,
    /// The kernel has none of it.
    Kernel,
    /// Registering needs CAP_SYS_ADMIN in the initial user namespace.
    Privilege,
    /// Its file system reports errors and settles what was written when a file is closed, which
    /// nobody does for a file that the kernel uses by itself.
    Remote,
    /// Its file system is itself stacked on others, deeper than the source's.
    Stacked,
    /// It can only be appended to, which the kernel does not see to for a file that is read as well.
    AppendOnly,
    /// The kernel refused it.
    Refused(Errno),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Obstacle::TurnedOff => "passthrough=off",
            Obstacle::Writeback => "the kernel has no passthrough together with writeback",
            Obstacle::Kernel => {
                "the kernel has no passthrough (Linux 6.9 with CONFIG_FUSE_PASSTHROUGH has)"
            }
            Obstacle::Privilege => {
                "registering files needs CAP_SYS_ADMIN in the initial user namespace"
            }
            Obstacle::Remote => "the file system beneath does part of its work at close(2)",
            Obstacle::Stacked => "the file system beneath is stacked on others too deep",
            Obstacle::AppendOnly => "an append-only file is watched over by the server",
            Obstacle::Refused(error) => return write!(f, "the kernel refused: {error}"),
        })
    }
}

/// How an inode is used by those who have it open now.
#[derive(Debug)]
pub(crate) struct Use {
    path: DataPath,
    obstacle: Option<Obstacle>,
    backing: Option<Arc<Backing>>,
    opens: u32,
    writable_opens: u32,
}

impl Use {
    /// What kept it from going straight through.
    pub(crate) fn obstacle(&self) -> Option<Obstacle> {
        self.obstacle
    }

    fn backing(&self) -> Option<BackingId> {
        self.backing.as_ref().map(|backing| backing.id())
    }
}

/// One open that counts; dropped when it is released.
pub(crate) struct UseGuard {
    inode: Arc<Inode>,
    path: DataPath,
    backing: Option<BackingId>,
    writable: bool,
}

impl UseGuard {
    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    pub(crate) fn path(&self) -> DataPath {
        self.path
    }

    pub(crate) fn backing(&self) -> Option<BackingId> {
        self.backing
    }
}

impl Drop for UseGuard {
    fn drop(&mut self) {
        let mut slot = self.inode.uses();
        let Some(current) = slot.as_mut() else { return };
        current.opens -= 1;
        current.writable_opens -= u32::from(self.writable);
        if current.opens > 0 {
            return;
        }
        let ended = slot.take();
        drop(slot);
        if self.inode.lost_a_name() {
            // Perhaps its last: what it takes up is free when nobody holds it.
            self.inode.drop_descriptor();
        }
        // Giving up a registration is a system call: outside the lock.
        drop(ended);
    }
}

/// Whether files of a served directory can go straight through.
#[derive(Debug, Default)]
pub(crate) struct Passthrough {
    /// Settled once, when the connection has started; before that nothing goes through.
    settled: OnceLock<std::result::Result<Backings, Obstacle>>,
    /// What the first registration showed to be in the way of all.
    refused: OnceLock<Obstacle>,
    warned: AtomicBool,
}

impl Passthrough {
    /// Settles it for the connection; `privileged` tells whether this process may register files as
    /// far as it knows. Trying it has to wait for the first file: the kernel may only now be looking
    /// at the answer to INIT.
    pub(crate) fn settle(
        &self,
        wanted: bool,
        privileged: bool,
        features: &Features,
        backings: Backings,
    ) {
        let outcome = if !wanted {
            Err(Obstacle::TurnedOff)
        } else if features.flags.contains(InitFlags::WRITEBACK_CACHE) {
            Err(Obstacle::Writeback)
        } else if !privileged {
            Err(Obstacle::Privilege)
        } else if !features.flags.contains(InitFlags::PASSTHROUGH) {
            Err(Obstacle::Kernel)
        } else {
            Ok(backings)
        };
        match &outcome {
            Ok(_) | Err(Obstacle::TurnedOff) => {}
            Err(obstacle) => tracing::info!("no file goes straight through: {obstacle}"),
        }
        let _ = self.settled.set(outcome);
    }

    fn backings(&self) -> std::result::Result<&Backings, Obstacle> {
        if let Some(obstacle) = self.refused.get() {
            return Err(*obstacle);
        }
        match self.settled.get() {
            Some(Ok(backings)) => Ok(backings),
            Some(Err(obstacle)) => Err(*obstacle),
            None => Err(Obstacle::TurnedOff),
        }
    }

    /// What kept a file from being registered; said once if it is in the way of more than that file.
    fn obstacle(&self, error: Errno, mount: &LowerMount) -> Obstacle {
        match error {
            Errno::EPERM => {
                if self.refused.set(Obstacle::Privilege).is_ok() {
                    tracing::info!("no file goes straight through: {}", Obstacle::Privilege);
                }
                Obstacle::Privilege
            }
            Errno::ELOOP => {
                if !mount.set_stacked() {
                    tracing::info!(
                        mount = mount.id(),
                        "files on a mount beneath do not go straight through: {}",
                        Obstacle::Stacked
                    );
                }
                Obstacle::Stacked
            }
            error => {
                if !self.warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!("a file cannot go straight through: {error} (said once)");
                }
                Obstacle::Refused(error)
            }
        }
    }

    /// How many registrations stand.
    pub(crate) fn registered(&self) -> usize {
        self.backings().map_or(0, Backings::registered)
    }

    /// Whether files on this mount may go straight through, as far as is known.
    pub(crate) fn permits(&self, mount: &LowerMount) -> std::result::Result<(), Obstacle> {
        self.backings()?;
        if mount.is_remote() {
            Err(Obstacle::Remote)
        } else if mount.is_stacked() {
            Err(Obstacle::Stacked)
        } else {
            Ok(())
        }
    }
}

/// What an open would do to the file.
#[derive(Clone, Copy, Debug)]
struct Intent {
    reads: bool,
    writes: bool,
    appends: bool,
    truncates: bool,
}

impl Intent {
    fn of(flags: i32) -> Intent {
        let access = flags & libc::O_ACCMODE;
        Intent {
            reads: access != libc::O_WRONLY,
            writes: access != libc::O_RDONLY,
            appends: flags & libc::O_APPEND != 0,
            truncates: flags & libc::O_TRUNC != 0,
        }
    }

    fn changes(self) -> bool {
        self.writes || self.truncates
    }

    /// What the lower file's flags forbid. The kernel above does not know them, and does not look
    /// when it opens the lower file for itself.
    fn check(self, stat: &Statx) -> Result<()> {
        let only_appends = self.appends && !self.truncates;
        let attributes = stat.stx_attributes;
        let forbidden = attributes.contains(StatxAttributes::IMMUTABLE)
            || (attributes.contains(StatxAttributes::APPEND) && !only_appends);
        if self.changes() && forbidden {
            Err(Errno::EPERM)
        } else {
            Ok(())
        }
    }

    /// Whether somebody could write elsewhere than at the end of an append-only file, if it went
    /// straight through: by a shared map. A write cannot, since the kernel opens the lower file with
    /// `O_APPEND`, which stays with it.
    fn needs_watching(self, stat: &Statx) -> bool {
        self.reads && self.writes && stat.stx_attributes.contains(StatxAttributes::APPEND)
    }
}

impl Host {
    /// Takes part in the use of `inode`, or begins it, for an open with the client's `flags`.
    /// What the file is like, if that is `known`, need not be asked.
    ///
    /// # Errors
    ///
    /// `EPERM` for what an immutable or append-only file forbids; `EBUSY` for an open
    /// for reading and appending of an append-only file that goes straight through for others; errors of the lower file system.
    pub(crate) fn use_file(
        &self,
        inode: &Arc<Inode>,
        flags: i32,
        known: Option<&Statx>,
    ) -> Result<UseGuard> {
        let writable = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let mut slot = inode.uses();
        if slot.is_none() {
            let begun = self.begin_use(inode, flags, known)?;
            tracing::trace!(node = ?inode.node(), path = %begun.path, why = ?begun.obstacle());
            *slot = Some(begun);
        } else if let Some(current) = slot.as_ref()
            && current.path == DataPath::Passthrough
        {
            self.check_joining(inode, flags)?;
        }
        Ok(join(slot, inode, writable))
    }

    /// What the kernel does not check once a file goes straight through.
    fn check_joining(&self, inode: &Arc<Inode>, flags: i32) -> Result<()> {
        let intent = Intent::of(flags);
        if !intent.changes() {
            return Ok(());
        }
        let stat = self.file_attributes(inode)?;
        intent.check(&stat)?;
        if intent.needs_watching(&stat) {
            return Err(Errno::EBUSY);
        }
        Ok(())
    }

    fn begin_use(&self, inode: &Arc<Inode>, flags: i32, known: Option<&Statx>) -> Result<Box<Use>> {
        let obstacle = match self.passthrough.permits(inode.mount()) {
            Err(obstacle) => obstacle,
            Ok(()) => {
                let stat = match known {
                    Some(known) => *known,
                    None => self.file_attributes(inode)?,
                };
                let intent = Intent::of(flags);
                intent.check(&stat)?;
                if intent.needs_watching(&stat) {
                    Obstacle::AppendOnly
                } else {
                    match self.register(inode) {
                        Ok(backing) => {
                            return Ok(begun(DataPath::Passthrough, None, Some(backing)));
                        }
                        Err(obstacle) => obstacle,
                    }
                }
            }
        };
        let path = self.config.cache.data_path();
        Ok(begun(path, Some(obstacle), None))
    }

    fn file_attributes(&self, inode: &Arc<Inode>) -> Result<Statx> {
        let descriptor = self.descriptor(inode)?;
        let mask = rustix::fs::StatxFlags::empty();
        Ok(rustix::fs::statx(
            descriptor.as_fd(),
            c"",
            AtFlags::EMPTY_PATH,
            mask,
        )?)
    }

    /// The inode's registration, made now if there is none.
    fn register(&self, inode: &Arc<Inode>) -> std::result::Result<Arc<Backing>, Obstacle> {
        if let Some(backing) = inode.cached_backing() {
            return Ok(backing);
        }
        let backings = self.passthrough.backings()?;
        let registered = self
            .descriptor(inode)
            .and_then(|descriptor| {
                self.credentials.as_registrar()?;
                backings.register(descriptor.as_fd())
            })
            .map(Arc::new);
        match registered {
            Ok(backing) => {
                inode.keep_backing(&backing);
                Ok(backing)
            }
            Err(error) => Err(self.passthrough.obstacle(error, inode.mount())),
        }
    }
}

fn begun(path: DataPath, obstacle: Option<Obstacle>, backing: Option<Arc<Backing>>) -> Box<Use> {
    Box::new(Use {
        path,
        obstacle,
        backing,
        opens: 0,
        writable_opens: 0,
    })
}

fn join(
    mut slot: MutexGuard<'_, Option<Box<Use>>>,
    inode: &Arc<Inode>,
    writable: bool,
) -> UseGuard {
    let mut guard = UseGuard {
        inode: Arc::clone(inode),
        path: DataPath::Cached,
        backing: None,
        writable,
    };
    if let Some(current) = slot.as_mut() {
        current.opens += 1;
        current.writable_opens += u32::from(writable);
        guard.path = current.path;
        guard.backing = current.backing();
    }
    guard
}

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

mod passthrough;

pub(crate) use passthrough::{Obstacle, Passthrough};

use crate::admission::Intent;
use crate::filter::Filter;
use crate::host::Host;
use crate::inode::Inode;
use crate::mounts::LowerMount;
use crate::policy::{self, FilePath, Redaction, RedactionKinds};
use crate::quota::QuotaCharge;
use crate::rules::PASSTHROUGH;
use parking_lot::MutexGuard;
use rustix::fs::{AtFlags, Statx, StatxAttributes, StatxFlags};
use std::fmt;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use thrufs::{Backing, BackingId, Errno, Result};
use thrufs_abi::FileHandle;

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
    /// Through us, who take something out of what is read.
    Filtered,
}

impl fmt::Display for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DataPath::Passthrough => "passthrough",
            DataPath::Cached => "cached",
            DataPath::Direct => "direct",
            DataPath::Filtered => "filtered",
        })
    }
}

/// How the data of a file go that was open in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    path: DataPath,
    redaction: Option<Redaction>,
    /// It may write to a file that others see redacted.
    writes: bool,
}

/// In the number of a route: the path; behind it the kinds that are taken out; behind them the error for
/// what is not understood.
const CACHED: u32 = 1;
const DIRECT: u32 = 2;
const FILTERED: u32 = 3;
const FILTERED_WRITER: u32 = 4;
const KINDS_SHIFT: u32 = 8;
const ERRNO_SHIFT: u32 = 16;

impl Route {
    /// As a number, never 0.
    pub(crate) fn number(self) -> u32 {
        let path = match self.path {
            // What goes straight through goes so with one kernel, and by us with the next.
            DataPath::Passthrough | DataPath::Cached => CACHED,
            DataPath::Direct => DIRECT,
            DataPath::Filtered if self.writes => FILTERED_WRITER,
            DataPath::Filtered => FILTERED,
        };
        let redaction = self.redaction.map_or(0, |redaction| {
            let errno = redaction.errno.raw().cast_unsigned() & 0xffff;
            u32::from(redaction.kinds.bits()) << KINDS_SHIFT | errno << ERRNO_SHIFT
        });
        path | redaction
    }

    /// The route that [`number`](Self::number) has told.
    pub(crate) fn from_number(number: u32) -> Option<Route> {
        let (kinds, errno) = ((number >> KINDS_SHIFT) as u8, number >> ERRNO_SHIFT);
        let path = match number & ((1 << KINDS_SHIFT) - 1) {
            CACHED => DataPath::Cached,
            DIRECT => DataPath::Direct,
            FILTERED | FILTERED_WRITER => DataPath::Filtered,
            _ => return None,
        };
        let writes = number & ((1 << KINDS_SHIFT) - 1) == FILTERED_WRITER;
        if path != DataPath::Filtered {
            return (number >> KINDS_SHIFT == 0).then_some(Route {
                path,
                redaction: None,
                writes: false,
            });
        }
        let errno = match errno {
            0 => Errno::EACCES,
            errno => Errno::from_raw(errno.cast_signed()),
        };
        Some(Route {
            path,
            redaction: Some(Redaction {
                kinds: RedactionKinds::from_bits(kinds)?,
                errno,
                // Those who have it open may see what it is now, redacted.
                content: Default::default(),
            }),
            writes,
        })
    }

    /// Of an open file that others see redacted.
    pub(crate) fn redacted(redaction: Redaction, writes: bool) -> Route {
        Route {
            path: DataPath::Filtered,
            redaction: Some(redaction),
            writes,
        }
    }

    /// Whether it may write to a file that others see redacted.
    pub(crate) fn writes(self) -> bool {
        self.writes
    }

    fn wanted(self) -> FilePath {
        let data = match (self.path, self.redaction) {
            (_, Some(redaction)) => policy::DataPath::Redact(redaction),
            (DataPath::Direct, None) => policy::DataPath::Direct,
            (_, None) => policy::DataPath::Cached,
        };
        FilePath {
            data,
            ..PASSTHROUGH
        }
    }
}

/// How an inode is used by those who have it open now.
#[derive(Debug)]
pub(crate) struct Use {
    path: DataPath,
    obstacle: Option<Obstacle>,
    backing: Option<Arc<Backing>>,
    filter: Option<Arc<Filter>>,
    opens: u32,
    writable_opens: u32,
}

impl Use {
    pub(crate) fn filter(&self) -> Option<&Arc<Filter>> {
        self.filter.as_ref()
    }

    /// Whether an open that is to go this way may take part.
    ///
    /// # Errors
    ///
    /// `EBUSY` when somebody would see what the policy now takes out: those who have it open see it,
    /// and all go the same way.
    fn admits(&self, wanted: &FilePath) -> Result<()> {
        let shows_too_much = match wanted.data {
            policy::DataPath::Redact(redaction) => {
                let filter = self.filter.as_ref();
                !filter.is_some_and(|filter| filter.is_as_strict_as(redaction))
            }
            _ => false,
        };
        if shows_too_much {
            Err(Errno::EBUSY)
        } else {
            Ok(())
        }
    }

    pub(crate) fn path(&self) -> DataPath {
        self.path
    }

    /// What kept it from going straight through.
    pub(crate) fn obstacle(&self) -> Option<Obstacle> {
        self.obstacle
    }

    /// Whether there is more than one open.
    pub(crate) fn is_shared(&self) -> bool {
        self.opens > 1
    }

    /// Whether one of the opens is for writing.
    pub(crate) fn has_writers(&self) -> bool {
        self.writable_opens > 0
    }

    pub(crate) fn backing(&self) -> Option<BackingId> {
        self.backing.as_ref().map(|backing| backing.id())
    }
}

/// One open that counts; dropped when it is released.
pub(crate) struct UseGuard {
    inode: Arc<Inode>,
    path: DataPath,
    backing: Option<BackingId>,
    filter: Option<Arc<Filter>>,
    writable: bool,
    /// Of whoever opened it, where that costs a descriptor.
    charge: OnceLock<QuotaCharge>,
}

impl UseGuard {
    /// It costs a descriptor.
    pub(crate) fn hold(&self, charge: Option<QuotaCharge>) {
        if let Some(charge) = charge {
            let _ = self.charge.set(charge);
        }
    }

    pub(crate) fn charge(&self) -> Option<&QuotaCharge> {
        self.charge.get()
    }

    /// What readers do not see.
    pub(crate) fn filter(&self) -> Option<&Arc<Filter>> {
        self.filter.as_ref()
    }

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
        self.end();
        self.inode.mount().file_closed();
    }
}

impl UseGuard {
    fn end(&self) {
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

impl Host {
    /// Whether a file that is to go this way is one for the kernel to open by itself.
    pub(crate) fn may_use_passthrough(&self, mount: &LowerMount, wanted: &FilePath) -> bool {
        wanted.data == policy::DataPath::Passthrough && self.passthrough.permits(mount).is_ok()
    }

    /// Takes part in the use of `inode`, or begins it, for an open with the client's `flags`.
    /// What the file is like, if that is `known`, need not be asked.
    ///
    /// # Errors
    ///
    /// `EBUSY` when the policy would have it go a way that those who have it open do not, and that
    /// is not for choice, and for an open for reading and appending of a file that was made append-only
    /// while it went straight through for others; `EPERM` for what an immutable or append-only file forbids; errors
    /// of the lower file system.
    pub(crate) fn use_file(
        &self,
        inode: &Arc<Inode>,
        flags: i32,
        known: Option<&Statx>,
        wanted: &FilePath,
    ) -> Result<UseGuard> {
        let writable = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let mut slot = inode.uses();
        if slot.is_none() {
            let begun = self.begin_use(inode, flags, known, wanted)?;
            tracing::trace!(node = ?inode.node(), path = %begun.path, why = ?begun.obstacle());
            *slot = Some(begun);
        } else if let Some(current) = slot.as_ref() {
            current.admits(wanted)?;
            if current.path == DataPath::Passthrough {
                self.check_joining(inode, flags)?;
            }
        }
        Ok(join(slot, inode, writable))
    }

    /// Takes part in the use of an inode for an open that another process has admitted. It was not
    /// straight through: files that are registered with a kernel do not change hands. `wanted` is what
    /// the policy says of it here, if it is asked.
    ///
    /// # Errors
    ///
    /// `EBUSY` when it would see what the policy takes out, or what is taken out for others who have the
    /// inode open.
    pub(crate) fn use_again(
        &self,
        inode: &Arc<Inode>,
        writable: bool,
        route: Option<Route>,
        wanted: Option<&FilePath>,
    ) -> Result<UseGuard> {
        let route = route.unwrap_or(Route {
            path: self.config.cache.data_path(),
            redaction: None,
            writes: false,
        });
        let mut slot = inode.uses();
        let here = || begun(self, route.path, None, None, &route.wanted());
        let current = slot.get_or_insert_with(here);
        let admitted = current
            .admits(&route.wanted())
            .and_then(|()| wanted.map_or(Ok(()), |wanted| current.admits(wanted)));
        if let Err(error) = admitted {
            if current.opens == 0 {
                *slot = None;
            }
            return Err(error);
        }
        Ok(join(slot, inode, writable))
    }

    /// The route of an open file, where a policy may have chosen it.
    pub(crate) fn route_of(&self, guard: &UseGuard, handle: FileHandle) -> Option<Route> {
        self.rules.are_there().then(|| Route {
            path: guard.path(),
            redaction: guard.filter().map(|filter| filter.redaction()),
            writes: guard.filter().is_some_and(|it| it.is_written_by(handle)),
        })
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

    /// Which way a file on this mount would go, as far as can be told without registering it.
    pub(crate) fn outlook(
        &self,
        mount: &LowerMount,
        wanted: &FilePath,
    ) -> (DataPath, Option<Obstacle>) {
        match wanted.data {
            policy::DataPath::Passthrough => match self.passthrough.permits(mount) {
                Ok(()) => (DataPath::Passthrough, None),
                Err(obstacle) => (self.config.cache.data_path(), Some(obstacle)),
            },
            // Cached, if anything is.
            policy::DataPath::Cached => (self.config.cache.data_path(), Some(Obstacle::Rule)),
            policy::DataPath::Direct => (DataPath::Direct, Some(Obstacle::Rule)),
            policy::DataPath::Redact(_) => (DataPath::Filtered, Some(Obstacle::Rule)),
        }
    }

    fn begin_use(
        &self,
        inode: &Arc<Inode>,
        flags: i32,
        known: Option<&Statx>,
        wanted: &FilePath,
    ) -> Result<Box<Use>> {
        let chosen = |path, obstacle| Ok(begun(self, path, obstacle, None, wanted));
        let (path, obstacle) = self.outlook(inode.mount(), wanted);
        if path != DataPath::Passthrough {
            return chosen(path, obstacle);
        }
        let stat = match known {
            Some(known) => *known,
            None => self.file_attributes(inode)?,
        };
        let intent = Intent::of(flags);
        intent.check(&stat)?;
        // Whoever opens it next may be one to be watched, and all go the same way.
        let obstacle = if stat.stx_attributes.contains(StatxAttributes::APPEND) {
            Obstacle::AppendOnly
        } else {
            match self.register(inode) {
                Ok(backing) => return Ok(begun(self, path, None, Some(backing), wanted)),
                Err(obstacle) => obstacle,
            }
        };
        chosen(self.config.cache.data_path(), Some(obstacle))
    }

    fn file_attributes(&self, inode: &Arc<Inode>) -> Result<Statx> {
        let descriptor = self.descriptor(inode)?;
        let flags = AtFlags::EMPTY_PATH;
        let stat = rustix::fs::statx(descriptor.as_fd(), c"", flags, StatxFlags::MODE)?;
        inode.record_mode(u32::from(stat.stx_mode));
        Ok(stat)
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

fn begun(
    host: &Host,
    path: DataPath,
    obstacle: Option<Obstacle>,
    backing: Option<Arc<Backing>>,
    wanted: &FilePath,
) -> Box<Use> {
    let filter = match wanted.data {
        policy::DataPath::Redact(redaction) => {
            Some(Arc::new(Filter::new(redaction, host.notes.clone())))
        }
        _ => None,
    };
    Box::new(Use {
        path,
        obstacle,
        backing,
        filter,
        opens: 0,
        writable_opens: 0,
    })
}

fn join(
    mut slot: MutexGuard<'_, Option<Box<Use>>>,
    inode: &Arc<Inode>,
    writable: bool,
) -> UseGuard {
    inode.mount().file_opened();
    let mut guard = UseGuard {
        inode: Arc::clone(inode),
        path: DataPath::Cached,
        backing: None,
        filter: None,
        writable,
        charge: OnceLock::new(),
    };
    if let Some(current) = slot.as_mut() {
        current.opens += 1;
        current.writable_opens += u32::from(writable);
        guard.path = current.path;
        guard.backing = current.backing();
        guard.filter.clone_from(&current.filter);
    }
    guard
}

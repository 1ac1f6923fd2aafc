//! The data path of an open file.
//!
//! The kernel uses the lower file itself (*passthrough*), or we read and write it, with the kernel's page
//! cache above (*cached*) or without (*direct*, *filtered*). The kernel requires that all simultaneous
//! opens of an inode use the same path, and under passthrough the same registration; an open that breaks
//! this fails with EIO. So the path is chosen by the first open of an inode, stored with the inode, and
//! joined by every open until the last release.
//!
//! **Access.** [`Use`] is in its inode under a lock, held while the path is chosen and the file
//! registered: opens of one inode wait for each other only. The kernel drops its side of an open *before*
//! it sends RELEASE, and takes it *after* OPEN was answered. So as long as we count an open from before its
//! answer to its RELEASE, we never count fewer than the kernel, and never change the path of an open file.
//!
//! **Registrations** (backing ids) are cached with the descriptor of the inode from which they were made,
//! and dropped with it. So a file that is opened again and again costs one call per open. An open holds its
//! registration whatever happens to the descriptor.

use super::admission::Intent;
use super::passthrough::Obstacle;
use crate::filter::Filter;
use crate::host::Host;
use crate::judge::PASSTHROUGH;
use crate::policy::{FilePath, PolicyDataPath, Redaction, RedactionKinds};
use crate::quota::QuotaCharge;
use crate::tree::Inode;
use crate::tree::LowerMount;
use parking_lot::MutexGuard;
use rustix::fs::{AtFlags, Statx, StatxAttributes, StatxFlags};
use std::fmt;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use thrufs::{Backing, BackingId, Errno, Result};
use thrufs_abi::FileHandle;

/// The data path of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DataPath {
    /// The kernel uses the lower file itself.
    Passthrough,
    /// Through the kernel's page cache, which we fill and write back.
    Cached,
    /// We serve every read and write.
    Direct,
    /// We serve reads, with metadata redacted.
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

/// The data path of a file that was open in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    path: DataPath,
    redaction: Option<Redaction>,
    /// It may write to a file that other opens see redacted.
    writes: bool,
}

/// The number of a route: the path, above it the redacted kinds, above them the error for files that are
/// not understood.
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
            // Passthrough with one kernel can be cached with the next.
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

    /// The inverse of [`number`](Self::number).
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
                // Opens may see what the file contains now, redacted.
                content: Default::default(),
            }),
            writes,
        })
    }

    /// Of an open file that other opens see redacted.
    pub(crate) fn redacted(redaction: Redaction, writes: bool) -> Route {
        Route {
            path: DataPath::Filtered,
            redaction: Some(redaction),
            writes,
        }
    }

    pub(crate) fn writes(self) -> bool {
        self.writes
    }

    fn wanted(self) -> FilePath {
        let data = match (self.path, self.redaction) {
            (_, Some(redaction)) => PolicyDataPath::Redact(redaction),
            (DataPath::Direct, None) => PolicyDataPath::Direct,
            (_, None) => PolicyDataPath::Cached,
        };
        FilePath {
            data,
            ..PASSTHROUGH
        }
    }
}

/// The opens of an inode.
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

    /// Whether an open with this path may join. Fails with `EBUSY` if it would see what the policy now
    /// redacts, because the earlier opens do.
    fn admits(&self, wanted: &FilePath) -> Result<()> {
        let shows_too_much = match wanted.data {
            PolicyDataPath::Redact(redaction) => {
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

    pub(crate) fn obstacle(&self) -> Option<Obstacle> {
        self.obstacle
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.opens > 1
    }

    pub(crate) fn has_writers(&self) -> bool {
        self.writable_opens > 0
    }

    pub(crate) fn backing(&self) -> Option<BackingId> {
        self.backing.as_ref().map(|backing| backing.id())
    }
}

/// One open, counted until it is dropped.
pub(crate) struct UseGuard {
    inode: Arc<Inode>,
    path: DataPath,
    backing: Option<BackingId>,
    filter: Option<Arc<Filter>>,
    writable: bool,
    /// For the user who opened it, where that costs a descriptor.
    charge: OnceLock<QuotaCharge>,
}

impl UseGuard {
    pub(crate) fn hold(&self, charge: Option<QuotaCharge>) {
        if let Some(charge) = charge {
            let _ = self.charge.set(charge);
        }
    }

    pub(crate) fn charge(&self) -> Option<&QuotaCharge> {
        self.charge.get()
    }

    /// The filter that redacts what readers see.
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
            // Perhaps the last reference: a file without names is freed then.
            self.inode.drop_descriptor();
        }
        // Giving up a registration is a system call: outside the lock.
        drop(ended);
    }
}

impl Host {
    /// Whether a new file with this path may be opened by the kernel itself.
    pub(crate) fn may_use_passthrough(&self, mount: &LowerMount, wanted: &FilePath) -> bool {
        wanted.data == PolicyDataPath::Passthrough && self.passthrough.permits(mount).is_ok()
    }

    /// Joins or begins the use of `inode`, for an open with the client's `flags`. `known` saves a statx(2).
    /// Fails with `EBUSY` when the policy demands another path than that of the earlier opens, and when an
    /// append-only file is opened for reading and appending while it is open under passthrough; `EPERM` for
    /// what an immutable or append-only file forbids; errors of the lower file system. of the lower file
    /// system.
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

    /// Joins the use of an inode for an open that another process has granted. It was not under passthrough:
    /// registered files cannot move to another process. `wanted` is what the policy demands here, if it is
    /// asked. Fails with `EBUSY` when it would see what the policy redacts, or what is redacted for other
    /// opens of the inode.
    pub(crate) fn resume_use(
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
        self.rules.has_policy().then(|| Route {
            path: guard.path(),
            redaction: guard.filter().map(|filter| filter.redaction()),
            writes: guard.filter().is_some_and(|it| it.is_written_by(handle)),
        })
    }

    /// Checks what the kernel does not check under passthrough.
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

    /// The path that a file on this mount would take, as far as known without registering it.
    pub(crate) fn expected_path(
        &self,
        mount: &LowerMount,
        wanted: &FilePath,
    ) -> (DataPath, Option<Obstacle>) {
        match wanted.data {
            PolicyDataPath::Passthrough => match self.passthrough.permits(mount) {
                Ok(()) => (DataPath::Passthrough, None),
                Err(obstacle) => (self.config.cache.data_path(), Some(obstacle)),
            },
            // Cached, if anything is.
            PolicyDataPath::Cached => (self.config.cache.data_path(), Some(Obstacle::Rule)),
            PolicyDataPath::Direct => (DataPath::Direct, Some(Obstacle::Rule)),
            PolicyDataPath::Redact(_) => (DataPath::Filtered, Some(Obstacle::Rule)),
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
        let (path, obstacle) = self.expected_path(inode.mount(), wanted);
        if path != DataPath::Passthrough {
            return chosen(path, obstacle);
        }
        let stat = match known {
            Some(known) => *known,
            None => self.file_attributes(inode)?,
        };
        let intent = Intent::of(flags);
        intent.check(&stat)?;
        // A later open may need watching, and all opens use the same path.
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
        PolicyDataPath::Redact(redaction) => {
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

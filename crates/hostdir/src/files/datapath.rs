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

use super::Files;
use super::admission::{check_attributes, needs_watching};
use super::guard::{UseGuard, join};
use super::intent::truncates_unchecked;
use super::open::access;
use crate::filter::Filter;
use crate::ledger::{FileNote, Route};
use crate::stat::stat_open;
use crate::tree::{Inode, LowerMount, Obstacle, Tree, Use};
use rustix::fs::{Statx, StatxAttributes};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use thrufs::{Backing, Context, Errno, Result};
use thrufs_abi::FileHandle;
use thrufs_policy::{Access, DataPath, FilePath};

/// How long an open waits for RELEASE requests of a program that has ended, in milliseconds.
const RELEASE_MS_MAX: u32 = 100;

impl Files {
    /// As [`use_file`](Self::use_file), for OPEN. The kernel does not wait for an answer to RELEASE: an open
    /// by the parent of a program that has ended can arrive before it.
    pub(crate) fn use_file_once_released(
        &self,
        context: &Context<'_>,
        inode: &Arc<Inode>,
        flags: i32,
        wanted: &FilePath,
    ) -> Result<UseGuard> {
        for _ in 0..RELEASE_MS_MAX {
            match self.use_file(inode, flags, None, wanted) {
                Err(Errno::ETXTBSY) => context.require_blocking()?,
                used => return used,
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.use_file(inode, flags, None, wanted)
    }

    /// Whether a new file with this path may be opened by the kernel itself.
    pub(crate) fn may_use_passthrough(&self, mount: &LowerMount, wanted: &FilePath) -> bool {
        wanted.data == DataPath::Passthrough && self.passthrough.permits(mount).is_ok()
    }

    /// Joins or begins the use of `inode`, for an open with the client's `flags`. `known` saves a statx(2).
    /// Fails with `EBUSY` when the policy demands another path than that of the earlier opens, and when an
    /// append-only file is opened for reading and appending while it is open under passthrough; `ETXTBSY`
    /// when a running program would be truncated, which the kernel would notice too late; `EPERM` for what
    /// an immutable or append-only file forbids; errors of the lower file system.
    pub(crate) fn use_file(
        &self,
        inode: &Arc<Inode>,
        flags: i32,
        known: Option<&Statx>,
        wanted: &FilePath,
    ) -> Result<UseGuard> {
        let mut slot = inode.uses.lock();
        let current = match &mut *slot {
            None => {
                let begun = self.begin_use(inode, flags, known, wanted)?;
                tracing::trace!(node = ?inode.node(), path = %begun.path, why = ?begun.obstacle);
                slot.insert(begun)
            }
            Some(current) => {
                current.admits(wanted)?;
                if truncates_unchecked(flags) && current.executing_opens > 0 {
                    return Err(Errno::ETXTBSY);
                }
                if current.path == DataPath::Passthrough && access(flags) == Access::Change {
                    // What the kernel does not check.
                    let stat = self.file_attributes(inode)?;
                    check_attributes(flags, &stat)?;
                    if needs_watching(flags, &stat) {
                        return Err(Errno::EBUSY);
                    }
                }
                current
            }
        };
        Ok(join(current, inode, flags))
    }

    /// Joins the use of an inode for an open that another process has granted, with that one's registration if it
    /// was of this connection. `wanted` is what the policy demands here, if it is asked. Fails with `EBUSY` when it
    /// would see what the policy redacts, or what is redacted for other opens of the inode; as
    /// [`Backings::adopt`](thrufs::Backings::adopt).
    pub(crate) fn resume_use(
        &self,
        inode: &Arc<Inode>,
        flags: i32,
        note: &FileNote,
        wanted: Option<&FilePath>,
    ) -> Result<UseGuard> {
        let cached = || FilePath::new(self.config.cache.data_path(), None);
        let before = match (note.backing, note.route) {
            (Some(_), _) => FilePath::new(DataPath::Passthrough, None),
            (None, Some(route)) => route.file,
            (None, None) => cached(),
        };
        let is_redacted = |path: &FilePath| path.redaction.is_some();
        // The rule here says of which types the file may be, and with which error it is refused.
        let here = wanted.filter(|wanted| is_redacted(wanted) && is_redacted(&before));
        let before = here.map_or(before, FilePath::clone);
        let mut slot = inode.uses.lock();
        let current = match &mut *slot {
            Some(current) => current,
            None => {
                let backing = match note.backing {
                    Some(id) => Some(Arc::new(
                        self.passthrough.backings_of_the_last()?.adopt(id)?,
                    )),
                    None => None,
                };
                slot.insert(begun(&self.tree, before.data, None, backing, &before))
            }
        };
        let admitted = current
            .admits(&before)
            .and_then(|()| wanted.map_or(Ok(()), |wanted| current.admits(wanted)));
        if let Err(error) = admitted {
            if current.opens == 0 {
                *slot = None;
            }
            return Err(error);
        }
        Ok(join(current, inode, flags))
    }

    /// The route of an open file, where a policy may have chosen it.
    pub(crate) fn route_of(&self, guard: &UseGuard, handle: FileHandle) -> Option<Route> {
        self.judge.has_policy().then(|| Route {
            file: FilePath {
                data: guard.path(),
                redaction: guard.filter().map(|filter| filter.redaction),
                rule: None,
            },
            writes: guard.filter().is_some_and(|it| it.is_written_by(handle)),
        })
    }

    /// The path that a file on this mount would take, as far as known without registering it.
    pub(crate) fn expected_path(
        &self,
        mount: &LowerMount,
        wanted: &FilePath,
    ) -> (DataPath, Option<Obstacle>) {
        match wanted.data {
            DataPath::Passthrough => match self.passthrough.permits(mount) {
                Ok(()) => (DataPath::Passthrough, None),
                Err(obstacle) => (self.config.cache.data_path(), Some(obstacle)),
            },
            // Cached, if anything is.
            DataPath::Cached => (self.config.cache.data_path(), Some(Obstacle::Rule)),
            DataPath::Direct | DataPath::Filtered => (wanted.data, Some(Obstacle::Rule)),
        }
    }

    fn begin_use(
        &self,
        inode: &Arc<Inode>,
        flags: i32,
        known: Option<&Statx>,
        wanted: &FilePath,
    ) -> Result<Box<Use>> {
        let chosen = |path, obstacle| Ok(begun(&self.tree, path, obstacle, None, wanted));
        let (path, obstacle) = self.expected_path(inode.mount(), wanted);
        if path != DataPath::Passthrough {
            return chosen(path, obstacle);
        }
        let stat = match known {
            Some(known) => *known,
            None => {
                let stat = self.file_attributes(inode)?;
                self.refresh_size(inode, &stat);
                stat
            }
        };
        check_attributes(flags, &stat)?;
        // A later open may need watching, and all opens use the same path.
        let obstacle = if stat.stx_attributes.contains(StatxAttributes::APPEND) {
            Obstacle::AppendOnly
        } else {
            match self.register(inode) {
                Ok(backing) => return Ok(begun(&self.tree, path, None, Some(backing), wanted)),
                Err(obstacle) => obstacle,
            }
        };
        chosen(self.config.cache.data_path(), Some(obstacle))
    }

    fn file_attributes(&self, inode: &Arc<Inode>) -> Result<Statx> {
        let descriptor = self.tree.descriptor(inode)?;
        let stat = stat_open(descriptor.as_fd())?;
        inode.noted.record_mode(u32::from(stat.stx_mode));
        Ok(stat)
    }

    /// The inode's registration, made now if there is none.
    fn register(&self, inode: &Arc<Inode>) -> std::result::Result<Arc<Backing>, Obstacle> {
        if let Some(backing) = inode.lower.cached_backing() {
            return Ok(backing);
        }
        let backings = self.passthrough.backings()?;
        let registered = self.tree.descriptor(inode).and_then(|descriptor| {
            let reserves_blocks = inode.mount().reserves_blocks();
            self.tree.credentials.as_registrar(reserves_blocks)?;
            let backing = backings.register(descriptor.as_fd())?;
            self.note_backing(backing.id());
            Ok(Arc::new(backing))
        });
        match registered {
            Ok(backing) => {
                inode.lower.keep_backing(&backing);
                Ok(backing)
            }
            Err(error) => Err(self.passthrough.obstacle(error, inode.mount())),
        }
    }
}

fn begun(
    tree: &Tree,
    path: DataPath,
    obstacle: Option<Obstacle>,
    backing: Option<Arc<Backing>>,
    wanted: &FilePath,
) -> Box<Use> {
    let filter = |redaction| Arc::new(Filter::new(redaction, tree.tables.clone()));
    Box::new(Use {
        path,
        obstacle,
        backing,
        filter: wanted.redaction.map(filter),
        opens: 0,
        writable_opens: 0,
        is_unmapped: false,
        executing_opens: 0,
        sync_errors: (0, Errno::EIO),
    })
}

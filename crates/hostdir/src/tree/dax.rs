//! Which files a guest maps from the host's page cache (DAX), by their names and what the machine monitor can map.
//!
//! Where the monitor maps whole pages within the file alone, the guest would read zeroes in the last one, and in
//! all that is added while it is mapped. There, only files of whole pages are mapped, and their size stays: the
//! guest cannot change it, and is told no larger one than its mappings cover.

use super::inode::Inode;
use crate::config::{Config, compile};
use crate::explanation::WindowUse;
use crate::ledger::StateTables;
use crate::statistics::DaxCounts;
use globset::GlobSet;
use parking_lot::Mutex;
use rustix::fs::{Statx, StatxAttributes};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use thrufs::{Errno, Result, WindowCoverage};
use thrufs_abi::AttrFlags;
use thrufs_policy::Access;

/// What is mapped, in bytes.
const PAGE_BYTES: u64 = 4096;

/// Why a guest does not map a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unmapped {
    #[error("it is none of the files that are to be mapped (dax=)")]
    Name,
    #[error("it is too small (dax_min_size=)")]
    Size,
    #[error("it does not end with a page, and the machine monitor maps whole pages")]
    PartOfPage,
    #[error("it cannot be written, and the machine monitor maps what is open for writing")]
    ReadOnly,
    #[error("rules restrict it, or may")]
    Rules,
}

const REASONS: usize = Unmapped::Rules as usize + 1;

/// What else decides whether a file is mapped; evaluated where nothing else excludes it.
pub(crate) struct MapConditions<'a> {
    /// What rules permit for as long as the file has its names.
    pub(crate) lasting_access: &'a dyn Fn() -> Option<Access>,
    pub(crate) is_mount_read_only: &'a dyn Fn() -> bool,
}

#[derive(Debug, Default)]
pub(crate) struct Dax {
    /// Named by the operator.
    names: GlobSet,
    bytes_min: u64,
    read_only: bool,
    /// Set by INIT, if files are to be mapped.
    window: OnceLock<Arc<dyn WindowCoverage>>,
    tables: Option<Arc<StateTables>>,
    noting: Mutex<()>,
    reported: AtomicU64,
    unmapped: [AtomicU64; REASONS],
    withdrawn: AtomicU64,
    refused: AtomicU64,
}

impl Dax {
    /// A configuration that was checked.
    pub(crate) fn new(config: &Config, tables: Option<Arc<StateTables>>) -> Dax {
        Dax {
            names: compile(&config.dax).unwrap_or_default(),
            bytes_min: config.dax_bytes_min,
            read_only: config.read_only,
            tables,
            ..Dax::default()
        }
    }

    pub(crate) fn begin(&self, window: Arc<dyn WindowCoverage>) {
        let _ = self.window.set(window);
    }

    /// The window, if there is one.
    pub(crate) fn window(&self) -> Option<&dyn WindowCoverage> {
        self.window.get().map(|window| &**window)
    }

    /// A window into which the monitor maps within files alone.
    fn strict_window(&self) -> Option<&dyn WindowCoverage> {
        self.window().filter(|window| !window.maps_beyond_end())
    }

    fn names_to_map(&self, window: &dyn WindowCoverage, name: &[u8]) -> bool {
        let is_all = self.names.is_empty() && window.maps_beyond_end();
        is_all || self.names.is_match(OsStr::from_bytes(name))
    }

    /// Notes a file that was looked up by this name.
    pub(crate) fn note_name(&self, inode: &Inode, name: &CStr) {
        if let Some(window) = self.window().filter(|_| inode.is_regular())
            && self.names_to_map(window, name.to_bytes())
        {
            inode.dax.name();
        }
    }

    /// Whether a file is to be mapped, and what rules permit then.
    ///
    /// A monitor that maps only what is open for writing gets no file that cannot be opened so: by its attributes, the
    /// mount or a rule. Nor a program, which could not be executed on the host meanwhile (`ETXTBSY`).
    fn mappable(
        &self,
        window: &dyn WindowCoverage,
        is_named: bool,
        stat: &Statx,
        conditions: &MapConditions<'_>,
    ) -> std::result::Result<Access, Unmapped> {
        if !is_named {
            return Err(Unmapped::Name);
        }
        if stat.stx_size < self.bytes_min {
            return Err(Unmapped::Size);
        }
        let is_of_pages = stat.stx_size.is_multiple_of(PAGE_BYTES) && stat.stx_size > 0;
        if !window.maps_beyond_end() && !is_of_pages {
            return Err(Unmapped::PartOfPage);
        }
        let access = (conditions.lasting_access)().ok_or(Unmapped::Rules)?;
        let may_write = || {
            let permits = !self.read_only && access == Access::Change;
            permits && is_writable(stat) && !(conditions.is_mount_read_only)()
        };
        if window.maps_read_only() || may_write() {
            Ok(access)
        } else {
            Err(Unmapped::ReadOnly)
        }
    }

    /// The flag of a file that the guest is to map. The same until the guest forgets the file, as it looks at the
    /// first only: a file that it makes itself, and that would be large enough some time, can have any size.
    pub(crate) fn flags(&self, inode: &Inode, stat: &Statx, conditions: &MapConditions<'_>) -> u32 {
        let Some(window) = self.window().filter(|_| inode.is_regular()) else {
            return 0;
        };
        let dax = &inode.dax;
        if !dax.is_decided() {
            let mappable = self.mappable(window, dax.is_named(), stat, conditions);
            if dax.decide(mappable.ok()) {
                let counter = match mappable {
                    Ok(_) => &self.reported,
                    Err(reason) => &self.unmapped[reason as usize],
                };
                counter.fetch_add(1, Ordering::Relaxed);
                self.note(inode);
            }
        }
        match dax.is_reported() {
            true => AttrFlags::DAX.bits(),
            false => 0,
        }
    }

    /// For the next process, before the guest knows it.
    fn note(&self, inode: &Inode) {
        if let Some(tables) = &self.tables {
            let _one_at_a_time = self.noting.lock();
            tables.note_dax(inode.node(), inode.dax.noted());
        }
    }

    /// How a file is mapped, and why it is not, for people. The inode is one that the guest knows.
    pub(crate) fn explain(
        &self,
        inode: Option<&Inode>,
        name: &[u8],
        stat: &Statx,
        conditions: &MapConditions<'_>,
    ) -> Option<WindowUse> {
        let window = self.window()?;
        let mappable = self.mappable(window, self.names_to_map(window, name), stat, conditions);
        let known = inode.filter(|inode| inode.dax.is_decided());
        let dax = known.map(|inode| &inode.dax);
        let is_mapped = dax.is_some_and(|dax| dax.is_reported() && !dax.is_withdrawn());
        let reason = match (dax, mappable) {
            (None, Ok(_)) => "the guest has not looked it up; it would map it".to_owned(),
            (None, Err(why)) => {
                format!("the guest has not looked it up; it would not map it: {why}")
            }
            (Some(dax), _) if dax.is_withdrawn() => {
                "rules have changed: it is unmapped once it is closed, and looked up anew"
                    .to_owned()
            }
            (_, Ok(_)) if is_mapped => "it is a DAX file".to_owned(),
            (_, Ok(_)) => {
                "it was no DAX file when the guest looked it up, which has to forget it first"
                    .to_owned()
            }
            (_, Err(why)) if is_mapped => {
                format!("it was a DAX file when the guest looked it up; it would not be now: {why}")
            }
            (_, Err(why)) => why.to_string(),
        };
        Some(WindowUse {
            mapped: is_mapped,
            ranges: known.map_or(0, |inode| window.mappings(inode.node())),
            reason,
        })
    }

    /// Counts of files and requests, if there is a window.
    pub(crate) fn figures(&self) -> Option<DaxCounts> {
        let window = self.window()?;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let unmapped = |reason: Unmapped| count(&self.unmapped[reason as usize]);
        Some(DaxCounts {
            maps_beyond_end: window.maps_beyond_end(),
            maps_read_only: window.maps_read_only(),
            files: count(&self.reported),
            unnamed: unmapped(Unmapped::Name),
            too_small: unmapped(Unmapped::Size),
            part_of_page: unmapped(Unmapped::PartOfPage),
            read_only: unmapped(Unmapped::ReadOnly),
            rules: unmapped(Unmapped::Rules),
            withdrawn: count(&self.withdrawn),
            refused: count(&self.refused),
        })
    }

    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back that the guest may map the file, which it keeps mapped while it has it open.
    pub(crate) fn withdraw(&self, inode: &Inode) {
        if inode.dax.withdraw() {
            self.withdrawn.fetch_add(1, Ordering::Relaxed);
            self.note(inode);
        }
        self.closed(inode);
    }

    /// Unmaps a file that is open no more, if it was withdrawn.
    pub(crate) fn closed(&self, inode: &Inode) {
        if inode.is_to_be_replaced()
            && let Some(window) = self.window()
        {
            window.withdraw(inode.node());
        }
    }

    /// Whether the guest may map the file. It asks for all of them when it is mounted with `dax=always`.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` for one that it was not told to map, where there are rules or the monitor would not map the end.
    pub(crate) fn may_map(&self, inode: &Inode, has_rules: bool) -> Result<()> {
        match has_rules || self.strict_window().is_some() {
            true if !inode.dax.is_reported() => Err(Errno::EOPNOTSUPP),
            _ => Ok(()),
        }
    }

    /// The size that the guest is told: of a file that it maps, whole pages, also after the host has added to it.
    pub(crate) fn size(&self, inode: &Inode, size: u64) -> u64 {
        let Some(window) = self.strict_window().filter(|_| inode.dax.is_reported()) else {
            return size;
        };
        let mappable = size / PAGE_BYTES * PAGE_BYTES;
        let covered = window.covered(inode.node());
        covered.map_or(mappable, |covered| mappable.min(covered))
    }

    /// Whether the guest may give the file another size than it was told.
    ///
    /// # Errors
    ///
    /// `EPERM`.
    pub(crate) fn may_resize(&self, inode: &Inode) -> Result<()> {
        match self.strict_window() {
            Some(_) if inode.dax.is_reported() => Err(Errno::EPERM),
            _ => Ok(()),
        }
    }

    /// The same for a change to `wanted`, of a file that `size` returns the size of.
    pub(crate) fn may_set_size(
        &self,
        inode: &Inode,
        wanted: u64,
        size: impl FnOnce() -> Result<u64>,
    ) -> Result<()> {
        match self.may_resize(inode) {
            Err(error) if wanted != self.size(inode, size()?) => Err(error),
            _ => Ok(()),
        }
    }

    /// The same for a change up to `end`, of a file that `size` returns the size of.
    pub(crate) fn may_write_to(
        &self,
        inode: &Inode,
        end: u64,
        size: impl FnOnce() -> Result<u64>,
    ) -> Result<()> {
        match self.may_resize(inode) {
            Err(error) if end > self.size(inode, size()?) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Whether a process with all capabilities can open the file for writing, and none executes it.
fn is_writable(stat: &Statx) -> bool {
    let forbids = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    !stat.stx_attributes.intersects(forbids) && stat.stx_mode & 0o111 == 0
}

#[cfg(test)]
mod tests;

//! Which files a guest maps from the host's page cache (DAX), by their names and what the machine monitor can map.
//!
//! Where the monitor maps whole pages within the file alone, the guest would read zeroes in the last one, and in
//! all that is added while it is mapped. There, only files of whole pages are mapped, and their size stays: the
//! guest cannot change it, and is told no larger one than its mappings cover.

use super::inode::Inode;
use crate::config::{Config, compile};
use globset::GlobSet;
use rustix::fs::Statx;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};
use thrufs::{Errno, Result, WindowCoverage};
use thrufs_abi::AttrFlags;

/// What is mapped, in bytes.
const PAGE_BYTES: u64 = 4096;

#[derive(Debug, Default)]
pub(crate) struct Dax {
    /// Named by the operator.
    names: GlobSet,
    bytes_min: u64,
    read_only: bool,
    /// Set by INIT, if files are to be mapped.
    window: OnceLock<Arc<dyn WindowCoverage>>,
}

impl Dax {
    /// A configuration that was checked.
    pub(crate) fn new(config: &Config) -> Dax {
        Dax {
            names: compile(&config.dax).unwrap_or_default(),
            bytes_min: config.dax_bytes_min,
            read_only: config.read_only,
            window: OnceLock::new(),
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

    /// Notes a file that was looked up by this name.
    pub(crate) fn note_name(&self, inode: &Inode, name: &CStr) {
        let Some(window) = self.window().filter(|_| inode.is_regular()) else {
            return;
        };
        let is_all = self.names.is_empty() && window.maps_beyond_end();
        if is_all || self.names.is_match(OsStr::from_bytes(name.to_bytes())) {
            inode.dax().name();
        }
    }

    /// The same of a session that is resumed, whose guest may have been told to map it.
    pub(crate) fn resume(&self, inode: &Inode, name: &CStr) {
        self.note_name(inode, name);
        if inode.dax().is_named() {
            inode.dax().report();
        }
    }

    /// The flag of a file that the guest is to map.
    pub(crate) fn flags(&self, inode: &Inode, stat: &Statx) -> u32 {
        let Some(window) = self.window().filter(|_| inode.dax().is_named()) else {
            return 0;
        };
        let is_of_pages = stat.stx_size.is_multiple_of(PAGE_BYTES) && stat.stx_size > 0;
        let is_mapped = (window.maps_beyond_end() || is_of_pages)
            && (window.maps_read_only() || !self.read_only)
            && stat.stx_size >= self.bytes_min;
        if !is_mapped {
            return 0;
        }
        inode.dax().report();
        AttrFlags::DAX.bits()
    }

    /// Whether the guest may map a file of this size, whatever it was told.
    ///
    /// # Errors
    ///
    /// `EINVAL` where it would read zeroes in the last page.
    pub(crate) fn may_map(&self, inode: &Inode, size: u64) -> Result<()> {
        if self.strict_window().is_some() && !size.is_multiple_of(PAGE_BYTES) {
            return Err(Errno::EINVAL);
        }
        inode.dax().report();
        Ok(())
    }

    /// The size that the guest is told.
    pub(crate) fn size(&self, inode: &Inode, size: u64) -> u64 {
        let window = self.strict_window().filter(|_| inode.dax().is_reported());
        let covered = window.and_then(|window| window.covered(inode.node()));
        covered.map_or(size, |covered| size.min(covered))
    }

    /// Whether the guest may give the file another size than it has.
    ///
    /// # Errors
    ///
    /// `EPERM`.
    pub(crate) fn may_resize(&self, inode: &Inode) -> Result<()> {
        match self.strict_window() {
            Some(_) if inode.dax().is_reported() => Err(Errno::EPERM),
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
            Err(error) if wanted != size()? => Err(error),
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
            Err(error) if end > size()? => Err(error),
            _ => Ok(()),
        }
    }
}

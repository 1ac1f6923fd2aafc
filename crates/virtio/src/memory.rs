//! Guest memory: regions and address translation.
//!
//! The front end passes each region as a file descriptor with two addresses: the guest's, which virtqueue
//! descriptors use, and the front end's ("user"), in which it gives the addresses of the queues. [`Regions`]
//! is an immutable table: when a region is added or removed, each queue gets a new table, and requests in
//! progress keep the old one. A region is unmapped with the last table that has it.
//!
//! No references to guest memory exist: bytes are copied, or passed to system calls
//! ([`thrufs_sys::shared_memory`]).

mod dirty;
mod pieces;

pub use dirty::{DirtyLog, LOG_PAGE_BYTES};
pub use pieces::Pieces;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
/// A range that is not, or not entirely, in guest memory.
pub(crate) use thrufs_sys::shared_memory::Outside;
use thrufs_sys::shared_memory::{Access, SharedMapping, Span};

/// Most regions of one guest: the maximum of QEMU and libvhost-user.
pub const REGIONS_MAX: usize = 509;

/// Why memory regions or a dirty log are invalid.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// A region cannot be mapped.
    #[error("a region of the guest's memory cannot be mapped: {0}")]
    Map(#[source] io::Error),
    /// The dirty log cannot be mapped.
    #[error("the log of pages that were written cannot be mapped: {0}")]
    Log(#[source] io::Error),
    /// The dirty log does not cover all that is to be logged.
    #[error("the log of pages that were written is too small for the guest's memory")]
    ShortLog,
    /// Two regions overlap in guest addresses.
    #[error("regions of the guest's memory overlap")]
    Overlap,
    /// More than [`REGIONS_MAX`] regions.
    #[error("the guest's memory has more than {REGIONS_MAX} regions")]
    TooMany,
    /// The region to be removed does not exist.
    #[error("there is no such region of the guest's memory")]
    Unknown,
}

/// A region of guest memory. Clones share the mapping.
#[derive(Clone, Debug)]
pub struct Region {
    guest: u64,
    user: u64,
    length: usize,
    mapping: Arc<SharedMapping>,
    /// It is a file in the DAX window, not the guest's memory.
    is_of_window: bool,
}

impl Region {
    /// Maps `length` bytes of `file` from `offset` on, at the guest address `guest` and the front end's
    /// address `user`.
    ///
    /// # Errors
    ///
    /// That of mmap(2); `EINVAL` for ranges that wrap or exceed the file.
    pub fn map(
        guest: u64,
        user: u64,
        length: u64,
        file: impl AsFd,
        offset: u64,
    ) -> Result<Region, MemoryError> {
        Region::map_with((guest, user, length), file, offset, false)
    }

    /// The same of a part of the DAX window. Its file may be truncated at any time, so that it may end before the
    /// region, and only system calls may touch it: data are read and written there, headers, names and rings are
    /// not.
    pub(crate) fn map_window(
        guest: u64,
        user: u64,
        length: u64,
        file: impl AsFd,
        offset: u64,
    ) -> Result<Region, MemoryError> {
        Region::map_with((guest, user, length), file, offset, true)
    }

    fn map_with(
        (guest, user, length): (u64, u64, u64),
        file: impl AsFd,
        offset: u64,
        is_of_window: bool,
    ) -> Result<Region, MemoryError> {
        let invalid = || MemoryError::Map(rustix::io::Errno::INVAL.into());
        guest.checked_add(length).ok_or_else(invalid)?;
        user.checked_add(length).ok_or_else(invalid)?;
        let length = usize::try_from(length).map_err(|_| invalid())?;
        let for_access = |access| SharedMapping::with(file.as_fd(), offset, length, access);
        let mapping = match is_of_window {
            // It may be open for reading.
            true => for_access(Access::ReadWrite).or_else(|_| for_access(Access::Read)),
            false => SharedMapping::new(file.as_fd(), offset, length),
        };
        let mapping = mapping.map_err(|errno| MemoryError::Map(errno.into()))?;
        Ok(Region {
            guest,
            user,
            length,
            mapping: Arc::new(mapping),
            is_of_window,
        })
    }

    fn end(&self) -> u64 {
        // Cannot overflow: checked by `map`.
        self.guest + self.length as u64
    }
}

/// A range within one region. It is valid only with the table that located it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    region: u16,
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

impl Extent {
    fn is_followed_by(&self, other: &Extent) -> bool {
        self.region == other.region && self.offset + self.length == other.offset
    }
}

/// The regions of a guest, sorted by guest address.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    regions: Vec<Region>,
}

impl Regions {
    /// A table of `regions`.
    ///
    /// # Errors
    ///
    /// When there are too many, or two overlap.
    pub fn new(mut regions: Vec<Region>) -> Result<Regions, MemoryError> {
        if regions.len() > REGIONS_MAX {
            return Err(MemoryError::TooMany);
        }
        regions.sort_by_key(|region| region.guest);
        let overlap = |pair: &[Region]| pair[0].end() > pair[1].guest;
        if regions.windows(2).any(overlap) {
            return Err(MemoryError::Overlap);
        }
        Ok(Regions { regions })
    }

    /// This table with one more region.
    pub fn with(&self, region: Region) -> Result<Regions, MemoryError> {
        let mut regions = self.regions.clone();
        regions.push(region);
        Regions::new(regions)
    }

    /// This table without the region at exactly these addresses.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Unknown`] when there is none.
    pub fn without(&self, guest: u64, user: u64, length: u64) -> Result<Regions, MemoryError> {
        let is_it = |region: &Region| {
            (region.guest, region.user, region.length as u64) == (guest, user, length)
        };
        let mut regions = self.regions.clone();
        let position = regions.iter().position(is_it).ok_or(MemoryError::Unknown)?;
        regions.remove(position);
        Ok(Regions { regions })
    }

    /// Whether there is no region.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    pub(crate) fn end(&self) -> u64 {
        self.regions.last().map_or(0, Region::end)
    }

    /// The guest address of an extent of this table.
    pub(crate) fn guest_address(&self, extent: &Extent) -> Result<u64, Outside> {
        let region = self.regions.get(usize::from(extent.region));
        let region = region.ok_or(Outside)?;
        Ok(region.guest + extent.offset as u64)
    }

    /// Translates the guest's `address`: as many of `length` bytes as are in one region.
    pub(crate) fn locate(&self, address: u64, length: usize) -> Result<Extent, Outside> {
        let after = self
            .regions
            .partition_point(|region| region.guest <= address);
        let number = after.checked_sub(1).ok_or(Outside)?;
        let region = &self.regions[number];
        let offset = (address - region.guest) as usize;
        let there = region.length.checked_sub(offset).ok_or(Outside)?;
        if there == 0 && length > 0 {
            return Err(Outside);
        }
        Ok(Extent {
            region: number as u16,
            offset,
            length: length.min(there),
        })
    }

    /// Adds the extents of `length` bytes at the guest's `address`. Adjacent ones are merged: a driver names
    /// the pages of a folio one by one.
    pub(crate) fn locate_all(
        &self,
        mut address: u64,
        mut length: usize,
        extents: &mut Vec<Extent>,
    ) -> Result<(), Outside> {
        address.checked_add(length as u64).ok_or(Outside)?;
        while length > 0 {
            let extent = self.locate(address, length)?;
            address += extent.length as u64;
            length -= extent.length;
            match extents.last_mut() {
                Some(last) if last.is_followed_by(&extent) => last.length += extent.length,
                _ => extents.push(extent),
            }
        }
        Ok(())
    }

    /// Translates `length` bytes at the front end's `address`, which must be in one region.
    pub(crate) fn locate_user(&self, address: u64, length: usize) -> Result<Extent, Outside> {
        let within = |(number, region): (usize, &Region)| {
            if region.is_of_window {
                return None;
            }
            let offset = usize::try_from(address.checked_sub(region.user)?).ok()?;
            let end = offset.checked_add(length)?;
            (end <= region.length).then_some(Extent {
                region: number as u16,
                offset,
                length,
            })
        };
        self.regions
            .iter()
            .enumerate()
            .find_map(within)
            .ok_or(Outside)
    }

    pub(crate) fn copy_out(&self, mut address: u64, mut target: &mut [u8]) -> Result<(), Outside> {
        while !target.is_empty() {
            let extent = self.locate(address, target.len())?;
            let (part, rest) = target.split_at_mut(extent.length);
            let mapping = self.mapping(&extent)?;
            mapping.copy_out(extent.offset, part)?;
            address = address.checked_add(extent.length as u64).ok_or(Outside)?;
            target = rest;
        }
        Ok(())
    }

    /// For access by the processor.
    pub(crate) fn mapping(&self, extent: &Extent) -> Result<&SharedMapping, Outside> {
        let region = self.regions.get(usize::from(extent.region));
        let region = region.filter(|region| !region.is_of_window);
        region.map(|region| &*region.mapping).ok_or(Outside)
    }

    /// For system calls.
    fn span(&self, extent: &Extent) -> Result<Span<'_>, Outside> {
        let region = self
            .regions
            .get(usize::from(extent.region))
            .ok_or(Outside)?;
        region.mapping.span(extent.offset, extent.length)
    }
}

#[cfg(test)]
pub(crate) mod tests;

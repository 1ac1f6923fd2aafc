//! A guest's memory: which of its addresses are mapped where.
//!
//! The front end hands over regions by descriptor, each with two addresses: the guest's own, which
//! descriptors of a queue name, and the front end's, by which it says where the queues themselves lie.
//! [`Regions`] is a table of them at one moment. It does not change: when the front end adds or removes
//! a region, a new table takes its place, queue by queue, and requests that are under way keep the one
//! that they began with. A region is unmapped when the last table that has it is gone.
//!
//! Nothing here refers to the bytes of a guest. They are copied, or named to system calls
//! ([`thrufs_sys::shared_memory`]).

mod dirty;
mod pieces;

pub use dirty::{DirtyLog, LOG_PAGE_BYTES};
pub use pieces::{Extent, Pieces};

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use thrufs_sys::shared_memory::SharedMapping;

/// Most regions of one guest: as many as QEMU and libvhost-user have at most.
pub const REGIONS_MAX: usize = 509;

/// Why a table of regions cannot be.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// A region cannot be mapped.
    #[error("a region of the guest's memory cannot be mapped: {0}")]
    Map(#[source] io::Error),
    /// A log of pages that were written cannot be mapped.
    #[error("the log of pages that were written cannot be mapped: {0}")]
    Log(#[source] io::Error),
    /// It has no bits for part of what is to be logged.
    #[error("the log of pages that were written is too small for the guest's memory")]
    ShortLog,
    /// Two regions have a guest address in common.
    #[error("regions of the guest's memory overlap")]
    Overlap,
    /// There are more than [`REGIONS_MAX`].
    #[error("the guest's memory has more than {REGIONS_MAX} regions")]
    TooMany,
    /// A region that is to be removed is not there.
    #[error("there is no such region of the guest's memory")]
    Unknown,
}

/// Addresses that are not, or not all, those of a guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an address outside the guest's memory")]
pub struct Outside;

/// A range of a guest's memory. Clones are the same mapping.
#[derive(Clone, Debug)]
pub struct Region {
    guest: u64,
    user: u64,
    length: usize,
    mapping: Arc<SharedMapping>,
}

impl Region {
    /// Maps `length` bytes of `file` from `offset` on, which the guest has at `guest` and the front
    /// end at `user`.
    ///
    /// # Errors
    ///
    /// What the system says; `EINVAL` for ranges that wrap and for what the file does not have.
    pub fn map(
        guest: u64,
        user: u64,
        length: u64,
        file: impl AsFd,
        offset: u64,
    ) -> Result<Region, MemoryError> {
        let invalid = || MemoryError::Map(rustix::io::Errno::INVAL.into());
        guest.checked_add(length).ok_or_else(invalid)?;
        user.checked_add(length).ok_or_else(invalid)?;
        let length = usize::try_from(length).map_err(|_| invalid())?;
        let mapping = SharedMapping::new(file.as_fd(), offset, length)
            .map_err(|errno| MemoryError::Map(errno.into()))?;
        Ok(Region {
            guest,
            user,
            length,
            mapping: Arc::new(mapping),
        })
    }

    fn end(&self) -> u64 {
        // Checked when it was made.
        self.guest + self.length as u64
    }
}

/// The regions of a guest's memory, in the order of its addresses.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    regions: Vec<Region>,
}

impl Regions {
    /// A table of these.
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

    /// This table and one more.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with(&self, region: Region) -> Result<Regions, MemoryError> {
        let mut regions = self.regions.clone();
        regions.push(region);
        Regions::new(regions)
    }

    /// This table without the region that has exactly this place.
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// The guest's address after the last byte of its memory.
    pub(crate) fn end(&self) -> u64 {
        self.regions.last().map_or(0, Region::end)
    }

    /// Where an extent of this table is for the guest.
    pub(crate) fn guest_address(&self, extent: &Extent) -> Result<u64, Outside> {
        let region = self.regions.get(usize::from(extent.region));
        let region = region.ok_or(Outside)?;
        Ok(region.guest + extent.offset as u64)
    }

    /// Where the first of `length` bytes at the guest's `address` lie: as many as one region has.
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

    /// Adds to `extents` where `length` bytes at the guest's `address` lie. What follows on the last of
    /// them is made part of it: pages of one folio come one by one.
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

    /// Where `length` bytes at the front end's `address` lie, which must be in one region.
    pub(crate) fn locate_user(&self, address: u64, length: usize) -> Result<Extent, Outside> {
        let within = |(number, region): (usize, &Region)| {
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

    /// Copies what lies at the guest's `address` to `target`.
    pub(crate) fn copy_out(&self, mut address: u64, mut target: &mut [u8]) -> Result<(), Outside> {
        while !target.is_empty() {
            let extent = self.locate(address, target.len())?;
            let (part, rest) = target.split_at_mut(extent.length);
            let mapping = self.mapping(&extent)?;
            mapping.copy_out(extent.offset, part).map_err(|_| Outside)?;
            address = address.checked_add(extent.length as u64).ok_or(Outside)?;
            target = rest;
        }
        Ok(())
    }

    /// The mapping that an extent of this table lies in.
    pub(crate) fn mapping(&self, extent: &Extent) -> Result<&SharedMapping, Outside> {
        let region = self.regions.get(usize::from(extent.region));
        region.map(|region| &*region.mapping).ok_or(Outside)
    }
}

#[cfg(test)]
pub(crate) mod tests;

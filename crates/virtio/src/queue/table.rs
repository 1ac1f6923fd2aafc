//! Reads chains from the guest's descriptor tables.

use super::chain::{Chain, ChainFault, DESCRIPTOR_BYTES, Descriptor, INDIRECT_MAX};
use crate::memory::{Extent, Regions};
use zerocopy::{FromZeros, IntoBytes};

/// The descriptor table of a queue. Belongs to one table of regions, as an [`Extent`] does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainTable {
    pub(super) descriptors: Extent,
    pub(super) size: u16,
    /// Indirect descriptors were negotiated.
    pub(super) indirect: bool,
}

impl ChainTable {
    pub(crate) fn read(
        &self,
        regions: &Regions,
        head: u16,
        chain: &mut Chain,
    ) -> Result<(), ChainFault> {
        chain.clear(head);
        let read = |index: usize| {
            let mut descriptor = Descriptor::new_zeroed();
            let offset = self.descriptors.offset + index * DESCRIPTOR_BYTES;
            let mapping = regions.mapping(&self.descriptors)?;
            mapping
                .copy_out(offset, descriptor.as_mut_bytes())
                .map_err(|_| ChainFault::Outside)?;
            Ok(descriptor)
        };
        let size = usize::from(self.size);
        chain.follow(head, size, regions, read, |chain, address, count| {
            self.read_indirect(regions, chain, address, count)
        })
    }

    fn read_indirect(
        &self,
        regions: &Regions,
        chain: &mut Chain,
        table: u64,
        count: usize,
    ) -> Result<(), ChainFault> {
        debug_assert!(count <= INDIRECT_MAX);
        if !self.indirect {
            return Err(ChainFault::BadTable);
        }
        let read = |index: usize| {
            let mut descriptor = Descriptor::new_zeroed();
            let address = table
                .checked_add((index * DESCRIPTOR_BYTES) as u64)
                .ok_or(ChainFault::Outside)?;
            regions.copy_out(address, descriptor.as_mut_bytes())?;
            Ok(descriptor)
        };
        let within = |_: &mut Chain, _, _| Err(ChainFault::BadTable);
        chain.follow(0, count, regions, read, within)
    }
}

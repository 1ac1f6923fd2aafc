//! Reads chains from the guest's descriptor tables.

use super::chain::{Chain, ChainFault, DESCRIPTOR_BYTES, Descriptor};
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
    /// Follows the chain of `head`. A descriptor of an indirect table ends it in this table and goes on in
    /// that one.
    pub(crate) fn read(
        &self,
        regions: &Regions,
        head: u16,
        chain: &mut Chain,
    ) -> Result<(), ChainFault> {
        chain.clear();
        let mut indirect = None;
        let (mut index, mut size) = (usize::from(head), usize::from(self.size));
        let mut left = size;
        while left > 0 {
            if index >= size {
                return Err(ChainFault::NoSuchDescriptor);
            }
            let descriptor = self.descriptor(regions, indirect, index)?;
            if let Some((address, count)) = descriptor.table()? {
                if !self.indirect || indirect.is_some() {
                    return Err(ChainFault::BadTable);
                }
                indirect = Some(address);
                (index, size, left) = (0, count, count);
                continue;
            }
            chain.add(&descriptor, regions)?;
            match descriptor.next() {
                Some(next) => index = usize::from(next),
                None => return Ok(()),
            }
            left -= 1;
        }
        Err(ChainFault::TooLong)
    }

    /// A descriptor of the table at the guest's address `indirect`, or of this one.
    fn descriptor(
        &self,
        regions: &Regions,
        indirect: Option<u64>,
        index: usize,
    ) -> Result<Descriptor, ChainFault> {
        let mut descriptor = Descriptor::new_zeroed();
        let offset = index * DESCRIPTOR_BYTES;
        if let Some(table) = indirect {
            let address = table.checked_add(offset as u64);
            let address = address.ok_or(ChainFault::Outside)?;
            regions.copy_out(address, descriptor.as_mut_bytes())?;
        } else {
            let mapping = regions.mapping(&self.descriptors)?;
            let at = self.descriptors.offset + offset;
            mapping.copy_out(at, descriptor.as_mut_bytes())?;
        }
        Ok(descriptor)
    }
}

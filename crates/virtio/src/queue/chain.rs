//! Descriptor chains: from the guest's table to the extents of a request and its reply.

use crate::memory::{Extent, Outside, Pieces, Regions};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(super) const INDIRECT_MAX: usize = 1024;

/// Most bytes of a request or of its reply buffers: twice the largest data of 16 MiB.
const BYTES_MAX: usize = 32 << 20;

pub(super) const DESCRIPTOR_BYTES: usize = size_of::<Descriptor>();

const FLAG_NEXT: u16 = 1;
const FLAG_WRITE: u16 = 2;
const FLAG_INDIRECT: u16 = 4;

/// Why a chain is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    /// More descriptors than allowed, or a loop.
    #[error("a chain with too many descriptors, or a loop")]
    TooLong,
    /// A descriptor index beyond the table.
    #[error("a chain that leads out of its table")]
    NoSuchDescriptor,
    /// An address outside the guest's memory.
    #[error("a descriptor of memory that the guest does not have")]
    Outside,
    /// More bytes than any request has.
    #[error("a chain of more than {BYTES_MAX} bytes")]
    TooLarge,
    /// A readable descriptor after a writable one.
    #[error("a chain with the request after the reply")]
    WrongOrder,
    /// A table within a table, of a size that is none, or that was not agreed on.
    #[error("an indirect table that is not allowed")]
    BadTable,
}

impl From<Outside> for ChainFault {
    fn from(_: Outside) -> ChainFault {
        ChainFault::Outside
    }
}

/// A private copy of a descriptor.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Descriptor {
    address: U64,
    length: U32,
    flags: U16,
    next: U16,
}

impl Descriptor {
    pub(super) fn next(&self) -> Option<u16> {
        (self.flags.get() & FLAG_NEXT != 0).then_some(self.next.get())
    }

    /// The address and number of descriptors of the indirect table that it names, if it does.
    pub(super) fn table(&self) -> Result<Option<(u64, usize)>, ChainFault> {
        if self.flags.get() & FLAG_INDIRECT == 0 {
            return Ok(None);
        }
        let length = self.length.get() as usize;
        let count = length / DESCRIPTOR_BYTES;
        let fits = length.is_multiple_of(DESCRIPTOR_BYTES) && (1..=INDIRECT_MAX).contains(&count);
        if !fits || self.flags.get() & FLAG_NEXT != 0 {
            return Err(ChainFault::BadTable);
        }
        Ok(Some((self.address.get(), count)))
    }
}

/// The extents of a request and of its reply. Reused, to keep its allocation.
#[derive(Debug, Default)]
pub struct Chain {
    readable: Vec<Extent>,
    readable_bytes: usize,
    writable: Vec<Extent>,
    writable_bytes: usize,
}

impl Chain {
    /// Bytes of the request.
    pub fn readable_bytes(&self) -> usize {
        self.readable_bytes
    }

    /// Room for the reply, in bytes.
    pub fn writable_bytes(&self) -> usize {
        self.writable_bytes
    }

    /// The request after its first `skip` bytes. `regions` must be the table that the chain was read with.
    pub fn readable<'a>(&'a self, regions: &'a Regions, skip: usize) -> Pieces<'a> {
        Pieces::new(regions, &self.readable, skip, usize::MAX)
    }

    /// Room for at most `length` bytes, after the first `skip`; `regions` as above.
    pub fn writable<'a>(&'a self, regions: &'a Regions, skip: usize, length: usize) -> Pieces<'a> {
        Pieces::new(regions, &self.writable, skip, length)
    }

    pub(super) fn clear(&mut self) {
        self.readable.clear();
        self.writable.clear();
        (self.readable_bytes, self.writable_bytes) = (0, 0);
    }

    pub(super) fn add(
        &mut self,
        descriptor: &Descriptor,
        regions: &Regions,
    ) -> Result<(), ChainFault> {
        let length = descriptor.length.get() as usize;
        let (extents, bytes) = if descriptor.flags.get() & FLAG_WRITE != 0 {
            (&mut self.writable, &mut self.writable_bytes)
        } else if self.writable.is_empty() {
            (&mut self.readable, &mut self.readable_bytes)
        } else {
            return Err(ChainFault::WrongOrder);
        };
        *bytes = bytes.saturating_add(length);
        if *bytes > BYTES_MAX {
            return Err(ChainFault::TooLarge);
        }
        Ok(regions.locate_all(descriptor.address.get(), length, extents)?)
    }
}

//! Split virtqueues in a guest's memory, as the device sees them (virtio 1.2, section 2.7).
//!
//! The descriptor table, the available ring and the used ring are in memory that the guest may write at any
//! time. Each value is read once, into private memory, and checked before it is used:
//!
//! * A malformed **chain** (a loop, an index beyond the table, an address outside memory, more bytes than any
//!   request has) is a [`ChainFault`]: it is returned unused, and the queue continues.
//! * A malformed **ring** (more entries than its size, a descriptor that does not exist or is in use) is
//!   [`Broken`]: the queue stops.
//!
//! Nothing here allocates once a [`Chain`] has grown to its queue's requests, and queues share nothing.

mod chain;
mod ring;
mod table;

pub use chain::{Chain, ChainFault};
pub(crate) use ring::AvailableIndex;
pub use ring::{Broken, VirtqueueFeatures, VirtqueueLayout, VirtqueueLog, VirtqueueRing};
pub(crate) use table::ChainTable;

#[cfg(test)]
pub(crate) mod tests;

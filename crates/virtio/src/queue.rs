//! Split virtqueues in a guest's memory, as the device sees them (virtio 1.2, section 2.7).
//!
//! A queue is three tables in memory that the guest writes to at any time: descriptors, the ring of
//! those that are available, and the ring of those that were used. Everything read from there is read
//! once, into private memory, and checked before it is believed:
//!
//! * A **chain** that is malformed (a loop, an index beyond the table, an address outside memory, more
//!   bytes than any request has) is a [`ChainFault`]: it is given back unused, and the queue goes on.
//! * A **ring** whose structure is broken (more available than it has room for, a descriptor that is
//!   not there or not free) is [`Broken`]: nothing that follows means anything, and the queue stops.
//!
//! Nothing here allocates once a [`Chain`] has grown to what its queue sends, and nothing is shared
//! between queues.

mod chain;
mod ring;
mod table;

pub use chain::{Chain, ChainFault};
pub(crate) use ring::Lookout;
pub use ring::{Broken, Layout, Ring, RingFeatures, RingLog};
pub(crate) use table::ChainTable;

#[cfg(test)]
pub(crate) mod tests;

//! Deliberate protocol violations of guests and virtual machines, for tests of servers: [`storm`] sends arbitrary
//! messages and requests at random. Faulty chains are made by the tests of `thrufs-virtio`.
//!
//! A server may answer with an error or close the connection. It must not crash, touch memory outside the guest's,
//! or fail the next front end.

mod socket;
pub mod storm;

//! Deliberate protocol violations of guests and virtual machines, for tests of servers: [`storm`] sends faulty
//! chains, arbitrary messages and requests at random.
//!
//! A server may refuse a faulty chain by returning it unwritten, by an error, by stopping the queue or by
//! closing the connection. It must not crash, touch memory outside the guest's, or fail the next front end.

mod chain;
mod socket;
pub mod storm;

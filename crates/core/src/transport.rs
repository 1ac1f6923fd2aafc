//! Transports: the ways in which requests arrive and replies leave.
//!
//! A transport owns memory and threads. It knows a request only by the [`Outcome`](crate::Outcome) that
//! [`Dispatcher`](crate::Dispatcher) returns. INIT, and what the kernel sends or takes on `/dev/fuse` only
//! (FORGET, INTERRUPT, notifications), stay with [`dev`], whichever transport carries the rest.

mod carrier;
mod connection;
pub(crate) mod dev;
pub(crate) mod uring;

pub use carrier::{Carrier, UringRefusal};
pub(crate) use connection::{Connection, LARGE_BYTES};

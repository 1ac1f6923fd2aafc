//! Faults over io_uring: ends of every kind under load, a CPU that goes and comes back, what sleeps
//! and must not hold others up, and mounts that have to do without a ring.
//!
//! Whatever happens, callers must come back: with an answer, or with an error.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod ends;
mod fallback;
mod hotplug;
mod load;
mod memory;
mod slow;
mod starts;
mod waits;

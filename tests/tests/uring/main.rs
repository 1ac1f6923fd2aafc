//! Faults over io_uring: ends of every kind under load, CPU hotplug, blocking requests, and mounts without
//! a ring. Every caller must return: with an answer, or with an error.

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

//! The client against the device of Thrufs.
#![allow(clippy::unwrap_used)]

mod bench;
mod migration;

//! The client against running servers: Thrufs, and in the full tier virtiofsd.
#![allow(clippy::unwrap_used)]

mod ground;
mod migration;
mod servers;
mod tool;

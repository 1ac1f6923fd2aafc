//! The client against running servers: ours, and in the full tier virtiofsd.
#![allow(clippy::unwrap_used)]

mod ground;
mod migration;
mod servers;
mod tool;

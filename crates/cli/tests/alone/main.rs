//! Tests that look at all of /run/thrufs, or need a CPU for each of their threads: `cargo xtask test` runs
//! no other test program meanwhile.
#![allow(clippy::unwrap_used)]

mod control;
#[path = "../ground/mod.rs"]
mod ground;
mod resume;

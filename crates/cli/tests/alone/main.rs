//! Tests that inspect all of /run/thrufs, or need a CPU for each thread: `cargo xtask test` runs no other
//! test program meanwhile.
#![allow(clippy::unwrap_used)]

mod control;
#[path = "../ground/mod.rs"]
mod ground;
mod mount_resume;
mod resume;
mod upgrade;
mod window;

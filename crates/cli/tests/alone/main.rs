//! What looks at what others leave in /run/thrufs, or counts on a CPU for each of its threads: no other
//! program of tests runs meanwhile.
#![allow(clippy::unwrap_used)]

mod control;
#[path = "../ground/mod.rs"]
mod ground;
mod resume;

//! A device and whoever speaks to it: guests and front ends, good and bad.
#![allow(clippy::unwrap_used)]

mod crew;
#[path = "../ground/mod.rs"]
mod ground;
mod hostile;
mod inflight;
mod migration;
mod served;

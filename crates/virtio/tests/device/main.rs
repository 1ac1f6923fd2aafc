//! The vhost-user device, asked by guests and front ends that keep to the protocol and by hostile ones.
#![allow(clippy::unwrap_used)]

mod crew;
#[path = "../ground/mod.rs"]
mod ground;
mod hostile;
mod inflight;
mod migration;
mod served;

//! The vhost-user device, with guests and front ends that keep to the protocol and hostile ones.
#![allow(clippy::unwrap_used)]

#[path = "../ground/mod.rs"]
mod ground;
mod hostile;
mod inflight;
mod late;
mod migration;
mod queue_helpers;
mod served;
mod window;

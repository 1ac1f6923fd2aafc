//! Real mounts over /dev/fuse: their start and end, requests that sleep, notifications.
#![allow(clippy::unwrap_used)]

#[path = "../cases/mod.rs"]
mod cases;
#[path = "../ground/mod.rs"]
mod ground;

/// The transport of this program's mounts, unless a case sets another.
const OVER: thrufs::Transport = thrufs::Transport::Dev;

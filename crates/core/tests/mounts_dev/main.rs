//! Real mounts: their beginning, their end, what happens when requests sleep, and what the kernel makes of
//! each notification, over /dev/fuse.
#![allow(clippy::unwrap_used)]

#[path = "../cases/mod.rs"]
mod cases;
#[path = "../ground/mod.rs"]
mod ground;

/// What the mounts of this program are served over, unless a case says otherwise.
const OVER: thrufs::Transport = thrufs::Transport::Dev;

//! Real mounts: their beginning, their end, and what happens when requests sleep, over io_uring.
#![allow(clippy::unwrap_used)]

#[path = "cases/sessions.rs"]
mod cases;
mod ground;

/// What the mounts of this program are served over, unless a case says otherwise.
const OVER: thrufs::Transport = thrufs::Transport::Uring;

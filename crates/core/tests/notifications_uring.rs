//! What the kernel makes of each notification, on a real mount, over io_uring.
#![allow(clippy::unwrap_used)]

#[path = "cases/notifications.rs"]
mod cases;
mod ground;

/// What the mounts of this program are served over, unless a case says otherwise.
const OVER: thrufs::Transport = thrufs::Transport::Uring;

//! A reader of /dev/fuse that panics.
#![allow(clippy::unwrap_used)]

mod ground;
#[path = "cases/thread_panic.rs"]
mod thread_panic;

const OVER: thrufs::Transport = thrufs::Transport::Dev;

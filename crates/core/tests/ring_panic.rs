//! A thread of the ring transport that panics.
#![allow(clippy::unwrap_used)]

mod ground;
#[path = "cases/thread_panic.rs"]
mod thread_panic;

const OVER: thrufs::Transport = thrufs::Transport::Uring;

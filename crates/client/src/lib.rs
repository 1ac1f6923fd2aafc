//! A FUSE client in user space.
//!
//! [`Client`] speaks to a file system as a kernel would: it makes requests byte by byte and reads
//! the replies, through the same dispatch that serves a mount, without a mount. Tests, benchmarks
//! and fuzzers drive file systems with it, with any caller's ids, and with bytes that no kernel
//! would send.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod calls;
mod client;
mod listing;

pub use calls::Caller;
pub use client::{Client, ClientError};
pub use listing::Listed;

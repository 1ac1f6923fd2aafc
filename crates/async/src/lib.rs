#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod adapter;
mod context;
mod file_system;
mod methods;
#[cfg(test)]
mod tests;

pub use adapter::{Async, Task};
pub use context::Context;
pub use file_system::AsyncFileSystem;
pub use thrufs;

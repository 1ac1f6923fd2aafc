//! Passthrough: that it is used, that only the time differs, and that nothing which the kernel no longer
//! checks is lost. And the same without it.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

mod budget;
mod fallback;
mod ground;
mod limits;
mod names;
mod races;
mod requests;
mod sizes;

//! Tests of real mounts, run over each transport.

mod notifications;
pub mod sessions;

//! Tests of real mounts, run over each transport.
mod late;
mod notifications;
pub mod sessions;

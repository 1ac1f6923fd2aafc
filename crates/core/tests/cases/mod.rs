//! Tests of real mounts that are the same over each transport.

mod notifications;
pub mod sessions;

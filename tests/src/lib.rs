//! Tests that cross crates: the harness that mounts a tree with the `thrufs` command, and the comparison of
//! whole trees. The judges know nothing of the server: they make system calls in a directory.

#![deny(unsafe_code)]
// The whole crate is tests: a failed step must stop the case, and the panic is its report.
#![allow(clippy::unwrap_used)]
// Only this package uses it: names that say all need no more.
#![allow(missing_docs)]

pub mod acknowledged;
pub mod acl;
pub mod close;
pub mod compare;
pub mod connection;
pub mod fence;
pub mod guard;
pub mod guest;
pub mod lower;
pub mod machine;
pub mod measure;
pub mod mount_point;
pub mod mounted;
pub mod policy_race;
pub mod prelude;
pub mod programs;
pub mod property;
pub mod race;
pub mod relayed;
mod running;
pub mod server;
pub mod storm;
pub mod suite;
pub mod tracer;
pub mod transport;

pub use thrufs_testing::wait_until;

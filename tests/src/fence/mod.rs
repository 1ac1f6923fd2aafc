//! The unsafe code of the tests, fenced, beside that of `thrufs_testing::fence`: what `rustix` has no safe
//! call for.
//!
//! * [`ioctl`]: `ioctl` with any command.
//! * [`lease`]: `fcntl` with a number.
//! * [`seccomp`]: system calls that fail as on a kernel that lacks them.

pub mod ioctl;
pub mod lease;
pub mod seccomp;

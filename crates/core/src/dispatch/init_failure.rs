//! The reasons for which INIT fails.

use crate::errno::Errno;
use thrufs_abi::version::{KERNEL_VERSION, MIN_MINOR};

/// Why INIT failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitFailure {
    /// The kernel's version is not supported.
    #[error(
        "the kernel speaks FUSE {major}.{minor}; {KERNEL_VERSION}.{MIN_MINOR} (Linux 5.4) or \
         newer is needed"
    )]
    Version {
        /// Its major version.
        major: u32,
        /// Its minor version.
        minor: u32,
    },
    /// The file system refused.
    #[error("the file system refused to start: {0}")]
    Refused(#[source] Errno),
}

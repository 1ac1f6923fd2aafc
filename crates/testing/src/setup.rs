//! File systems under test for the POSIX cases.

use std::path::Path;
use std::sync::Arc;

/// A directory tree under test with its lower tree.
pub trait Tree: Send + Sync {
    /// The directory to test: the mount point, or the native directory itself.
    fn root(&self) -> &Path;

    /// The same directory in the lower file system; [`Tree::root`] natively or without one.
    fn beneath(&self) -> &Path;

    /// Makes all hanging calls in this tree return. Not for native trees.
    fn abort(&self) {}

    /// Prints the server's log, for the report of a failure. Not for native trees.
    fn print_log(&self) {}
}

/// A file system under test: how to mount it, and what it does not support.
pub trait Setup: Send + Sync {
    /// A short name for reports.
    fn name(&self) -> String;

    /// Mounts it, for the first case and after an abort. Dropping the tree unmounts it. All users must have
    /// search permission on its path.
    ///
    /// # Errors
    ///
    /// Why it cannot be mounted, as text.
    fn start(&self) -> Result<Arc<dyn Tree>, String>;

    /// Why cases with this need are skipped, if so. The reason is printed.
    fn lacks(&self, need: Need) -> Option<&'static str>;
}

/// What a case needs that not every file system has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// POSIX ACLs that are enforced.
    Acl,
    /// `FALLOC_FL_ZERO_RANGE`.
    ZeroRange,
    /// `FALLOC_FL_COLLAPSE_RANGE` and `FALLOC_FL_INSERT_RANGE`.
    ShiftRange,
    /// Neither of the two: they must be refused.
    NoShiftRange,
    /// Locks are shared with the lower tree.
    SharedLocks,
    /// So are locks of ranges as they are: no file is locked by the mount for what programs may map.
    SharedRanges,
    /// Written data reach the lower tree at once, without a flush.
    WriteThrough,
    /// Changes in the lower tree are visible at once.
    NoCache,
    /// `O_APPEND` can be cleared on an open file.
    AppendSwitchedOff,
    /// Not XFS, which has no minor numbers above 18 bits and no targets above 1023 bytes, and returns EEXIST for a
    /// full directory.
    NotXfs,
    /// Not btrfs, which does not count the links of directories, and counts room by transactions.
    NotBtrfs,
    /// Not overlayfs, which refuses to make whiteouts.
    NotOverlay,
    /// Truncation to the same size changes the times; not on XFS and btrfs.
    TruncateToSameSize,
    /// Data written in the lower tree are visible at the next open.
    CloseToOpen,
    /// Flags of the lower file are asked for at each open.
    AskedAtOpen,
    /// The server can invalidate the kernel's caches, or the kernel caches nothing.
    Notifications,
    /// Shared writable mappings.
    SharedMaps,
    /// Stores through a map in the lower tree are on the host at once.
    HostMaps,
    /// Attributes of the class `trusted`.
    TrustedAttributes,
}

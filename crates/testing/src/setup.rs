//! On what the list of POSIX cases runs.

use std::path::Path;
use std::sync::Arc;

/// A directory tree under test together with the tree that lies beneath it.
pub trait Tree: Send + Sync {
    /// The directory to test: the mount point, or the native directory itself.
    fn root(&self) -> &Path;

    /// The same directory in the lower file system. Natively, and where there is none, this is
    /// [`Tree::root`].
    fn beneath(&self) -> &Path;

    /// Makes every call that hangs in this tree return. A native tree has nothing to abort.
    fn abort(&self) {}

    /// Prints what the server said, for the report of a failure. A native tree has no server.
    fn print_log(&self) {}
}

/// A file system under test: how it is mounted, and what it does not do.
pub trait Setup: Send + Sync {
    /// A short name for reports.
    fn name(&self) -> String;

    /// Mounts it, before the first case or after a tree was aborted. It is unmounted when the tree is
    /// dropped. Every user must be able to walk down to it.
    ///
    /// # Errors
    ///
    /// Why it cannot be mounted, as text.
    fn start(&self) -> Result<Arc<dyn Tree>, String>;

    /// Why a case with this need cannot hold here, if so: it is not run then, and the reason is printed.
    fn lacks(&self, need: Need) -> Option<&'static str>;
}

/// What a case needs that not every ground has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// POSIX ACLs that are enforced.
    Acl,
    /// `FALLOC_FL_ZERO_RANGE`.
    ZeroRange,
    /// `FALLOC_FL_COLLAPSE_RANGE` and `FALLOC_FL_INSERT_RANGE`.
    ShiftRange,
    /// None of the two: they must then be refused.
    NoShiftRange,
    /// Locks that users of the tree beneath see too.
    SharedLocks,
    /// Written data that is beneath at once, without a flush.
    WriteThrough,
    /// Changes by others beneath that are seen at once.
    NoCache,
    /// `O_APPEND` that can be taken back from an open file.
    AppendSwitchedOff,
    /// Not XFS, which knows no minor numbers above 18 bits and no targets above 1023 bytes, and says
    /// EEXIST of a full directory.
    NotXfs,
    /// Not btrfs, which does not count the links of directories, and counts room by transactions.
    NotBtrfs,
    /// Not overlayfs, which makes no whiteouts for others.
    NotOverlay,
    /// Times that change when a file is cut to the size it has: natively, XFS and btrfs leave them.
    TruncateToSameSize,
    /// Data written by others beneath that are seen at the next open.
    CloseToOpen,
    /// A server that can tell the kernel of changes, or a kernel that keeps nothing.
    Notifications,
    /// Maps that several processes share.
    SharedMaps,
    /// Stores through a map beneath are on the host at once.
    HostMaps,
    /// Attributes of the class `trusted`.
    TrustedAttributes,
}

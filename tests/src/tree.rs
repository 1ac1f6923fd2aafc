//! A directory tree under test, native or mounted.

use std::path::Path;

use crate::lower::{Ground, Lower};

/// A directory tree under test together with the tree that lies beneath it.
pub trait Tree: Send + Sync {
    /// The directory to test: the mount point, or the native directory itself.
    fn root(&self) -> &Path;

    /// The same directory in the lower file system. Natively this is [`Tree::root`].
    fn beneath(&self) -> &Path;

    /// Makes every call that hangs in this tree return. A native tree has nothing to abort.
    fn abort(&self) {}

    /// Prints what the server said, for the report of a failure. A native tree has no server.
    fn print_log(&self) {}
}

/// A native directory on a chosen file system, the twin of a [`crate::mounted::Mounted`].
pub struct Native {
    ground: Ground,
}

impl Native {
    /// A fresh directory on the default file system for temporary files.
    pub fn start() -> Self {
        Self::start_on(Lower::Default).expect("a temporary directory")
    }

    /// A fresh directory on `lower`.
    ///
    /// # Errors
    ///
    /// What was missing to make the file system (privilege, `mkfs.ext4`), as text.
    pub fn start_on(lower: Lower) -> Result<Self, String> {
        Ok(Self {
            ground: Ground::prepare(lower)?,
        })
    }
}

impl Tree for Native {
    fn root(&self) -> &Path {
        self.ground.source()
    }

    fn beneath(&self) -> &Path {
        self.ground.source()
    }
}

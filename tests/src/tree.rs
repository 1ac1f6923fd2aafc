//! A native directory under test.

use std::path::Path;

use thrufs_testing::Tree;

use crate::lower::{Ground, Lower};

/// A native directory on a chosen file system, the twin of a [`crate::mounted::Mounted`].
pub struct Native {
    ground: Ground,
}

impl Native {
    pub fn start() -> Self {
        Self::start_on(Lower::Default).expect("a temporary directory")
    }

    /// A fresh directory on `lower`; fails without privilege or `mkfs.ext4`.
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

//! The shares of a guest, for tests that run inside one.
//!
//! A guest has two shares of one directory of the host: `shared` is under test, in any cache mode;
//! `beneath` caches nothing and shows the host's state. The guest's first process mounts both.

use std::path::Path;

use thrufs_testing::Tree;

/// Mount point of the share under test.
pub const SHARED: &str = "/shared";

/// Mount point of the share that shows the host's state.
pub const BENEATH: &str = "/beneath";

/// The two shares, as a tree and the tree beneath it. A guest cannot abort a call that hangs: the host ends
/// the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share;

impl Tree for Share {
    fn root(&self) -> &Path {
        Path::new(SHARED)
    }

    fn beneath(&self) -> &Path {
        Path::new(BENEATH)
    }
}

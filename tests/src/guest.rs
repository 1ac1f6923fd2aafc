//! The shares of a guest, for tests that run inside one.
//!
//! A guest has two shares of one directory of the host: `shared` is under test, in any cache mode;
//! `beneath` caches nothing and shows the host's state. The guest's first process mounts both.

use std::env;
use std::path::Path;

use thrufs_testing::Tree;

use crate::lower::Lower;
use crate::suite::Setting;

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

/// The setting that the host has prepared: `LOWER` is its file system, `OPTIONS` those of the share under
/// test.
pub fn setting() -> Result<Setting, String> {
    let variable = |name: &str| env::var(name).map_err(|error| format!("{name}: {error}"));
    let lower = variable("LOWER")?;
    let lower = [Lower::Tmpfs, Lower::Ext4, Lower::Xfs, Lower::Btrfs]
        .into_iter()
        .find(|known| known.name() == lower)
        .ok_or_else(|| format!("LOWER: no such file system: {lower}"))?;
    // Settings are constants everywhere else.
    let options: &'static str = variable("OPTIONS")?.leak();
    Ok(Setting {
        lower,
        options: Some(options),
        share: Some(Share),
        queues: None,
    })
}

//! The shares of a guest, for tests that run inside one.
//!
//! A guest has two shares of one directory of the host: `shared` is under test, with whatever cache
//! it was given, and `beneath` caches nothing, so that it shows what the host has. Both are there
//! when a test starts; the guest's first process has mounted them.

use std::env;
use std::path::Path;

use thrufs_testing::Tree;

use crate::lower::Lower;
use crate::suite::Setting;

/// Where the guest's first process mounts the share under test.
pub const SHARED: &str = "/shared";

/// Where it mounts the share that shows what the host has.
pub const BENEATH: &str = "/beneath";

/// The two shares, as a tree and the tree beneath it. Nothing in a guest can abort a call that
/// hangs: the host ends the guest.
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

/// The ground that the host has prepared: `LOWER` is the file system there, `OPTIONS` what the share
/// under test was given.
///
/// # Errors
///
/// As text: a variable that is missing, a file system that is not known.
pub fn setting() -> Result<Setting, String> {
    let variable = |name: &str| env::var(name).map_err(|error| format!("{name}: {error}"));
    let lower = variable("LOWER")?;
    let lower = [Lower::Tmpfs, Lower::Ext4, Lower::Xfs, Lower::Btrfs]
        .into_iter()
        .find(|known| known.name() == lower)
        .ok_or_else(|| format!("LOWER: no such file system: {lower}"))?;
    // As long as the process: settings are constants everywhere else.
    let options: &'static str = variable("OPTIONS")?.leak();
    Ok(Setting {
        lower,
        options: Some(options),
        share: Some(Share),
        queues: None,
    })
}

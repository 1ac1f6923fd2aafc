//! The file systems beneath that are made for a run. They go with its mount namespace.

use crate::Outcome;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which kind lies beneath.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Lower {
    Tmpfs,
    Ext4,
}

impl Lower {
    /// The one of that name.
    pub(crate) fn named(name: &str) -> Outcome<Self> {
        match name {
            "tmpfs" => Ok(Lower::Tmpfs),
            "ext4" => Ok(Lower::Ext4),
            _ => Err(format!("--lower {name}: tmpfs or ext4")),
        }
    }

    /// Its type.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Lower::Tmpfs => "tmpfs",
            Lower::Ext4 => "ext4",
        }
    }

    /// Makes one and mounts it in `work`.
    pub(crate) fn set_up(self, work: &Path) -> Outcome<PathBuf> {
        let point = work.join(self.name());
        std::fs::create_dir(&point).map_err(|error| format!("{}: {error}", point.display()))?;
        match self {
            Lower::Tmpfs => {
                run(Command::new("mount")
                    .args(["-t", "tmpfs", "-o", "size=8G", "tmpfs"])
                    .arg(&point))?;
            }
            Lower::Ext4 => {
                let image = work.join("image");
                let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
                file.set_len(8 << 30).map_err(|error| error.to_string())?;
                // Tables initialised at once: no background thread writes during the rounds.
                run(Command::new("mkfs.ext4")
                    .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
                    .arg(&image))?;
                run(Command::new("mount")
                    .args(["-o", "loop"])
                    .arg(&image)
                    .arg(&point))?;
            }
        }
        Ok(point)
    }
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) -> Outcome<()> {
    let status = command
        .status()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{command:?}: {status}"))
    }
}

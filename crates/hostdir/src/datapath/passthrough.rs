//! Whether files can go straight through, and why not.

use crate::mounts::LowerMount;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use thrufs::{Backings, Errno, Features};
use thrufs_abi::InitFlags;

/// Why a file does not go straight through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Nobody wants it to.
    TurnedOff,
    /// A rule of the policy says otherwise.
    Rule,
    /// The writeback cache was asked for, which the kernel does not combine.
    Writeback,
    /// The kernel has none of it.
    Kernel,
    /// Registering needs CAP_SYS_ADMIN in the initial user namespace.
    Privilege,
    /// Its file system reports errors and settles what was written when a file is closed, which
    /// nobody does for a file that the kernel uses by itself.
    Remote,
    /// Its file system is itself stacked on others, deeper than the source's.
    Stacked,
    /// It can only be appended to, which the kernel does not see to for a file that is read as well.
    AppendOnly,
    /// The kernel refused it.
    Refused(Errno),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Obstacle::TurnedOff => "nopassthrough",
            Obstacle::Rule => "a rule of the policy",
            Obstacle::Writeback => "the kernel has no passthrough together with writeback",
            Obstacle::Kernel => {
                "the kernel has no passthrough (requires Linux 6.9 with CONFIG_FUSE_PASSTHROUGH)"
            }
            Obstacle::Privilege => {
                "registering backing files requires CAP_SYS_ADMIN in the initial user namespace"
            }
            Obstacle::Remote => "the underlying file system does part of its work at close(2)",
            Obstacle::Stacked => "the underlying file system exceeds the stacking depth",
            Obstacle::AppendOnly => "writes to an append-only file are checked by the server",
            Obstacle::Refused(error) => return write!(f, "the kernel refused: {error}"),
        })
    }
}

/// Whether files of a served directory can go straight through.
#[derive(Debug, Default)]
pub(crate) struct Passthrough {
    /// Settled once, when the connection has started; before that nothing goes through.
    settled: OnceLock<Result<Backings, Obstacle>>,
    /// What the first registration showed to be in the way of all.
    refused: OnceLock<Obstacle>,
    warned: AtomicBool,
}

impl Passthrough {
    /// Settles it for the connection; `privileged` tells whether this process may register files as
    /// far as it knows. Trying it has to wait for the first file: the kernel may only now be looking
    /// at the answer to INIT.
    pub(crate) fn settle(
        &self,
        wanted: bool,
        privileged: bool,
        features: &Features,
        backings: Backings,
    ) {
        let outcome = if !wanted {
            Err(Obstacle::TurnedOff)
        } else if features.flags.contains(InitFlags::WRITEBACK_CACHE) {
            Err(Obstacle::Writeback)
        } else if !privileged {
            Err(Obstacle::Privilege)
        } else if !features.flags.contains(InitFlags::PASSTHROUGH) {
            Err(Obstacle::Kernel)
        } else {
            Ok(backings)
        };
        match &outcome {
            Ok(_) | Err(Obstacle::TurnedOff) => {}
            Err(obstacle) => tracing::info!("passthrough is off: {obstacle}"),
        }
        let _ = self.settled.set(outcome);
    }

    pub(super) fn backings(&self) -> Result<&Backings, Obstacle> {
        if let Some(obstacle) = self.refused.get() {
            return Err(*obstacle);
        }
        match self.settled.get() {
            Some(Ok(backings)) => Ok(backings),
            Some(Err(obstacle)) => Err(*obstacle),
            None => Err(Obstacle::TurnedOff),
        }
    }

    /// What kept a file from being registered; said once if it is in the way of more than that file.
    pub(super) fn obstacle(&self, error: Errno, mount: &LowerMount) -> Obstacle {
        match error {
            Errno::EPERM => {
                if self.refused.set(Obstacle::Privilege).is_ok() {
                    tracing::info!("passthrough is off: {}", Obstacle::Privilege);
                }
                Obstacle::Privilege
            }
            Errno::ELOOP => {
                mount.set_stacked();
                mount.tell_once(Obstacle::Stacked);
                Obstacle::Stacked
            }
            error => {
                if !self.warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!("no passthrough for a file: {error} (logged once)");
                }
                Obstacle::Refused(error)
            }
        }
    }

    /// Takes all registrations back: the connection has ended.
    pub(crate) fn end(&self) {
        if let Some(Ok(backings)) = self.settled.get() {
            backings.give_up_all();
        }
    }

    /// How many registrations stand.
    pub(crate) fn registered(&self) -> usize {
        self.backings().map_or(0, Backings::registered)
    }

    /// Whether files on this mount may go straight through, as far as is known.
    pub(crate) fn permits(&self, mount: &LowerMount) -> Result<(), Obstacle> {
        self.backings()?;
        if mount.is_remote() {
            mount.tell_once(Obstacle::Remote);
            Err(Obstacle::Remote)
        } else if mount.is_stacked() {
            Err(Obstacle::Stacked)
        } else {
            Ok(())
        }
    }
}

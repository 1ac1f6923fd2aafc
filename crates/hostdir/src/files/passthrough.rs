//! Whether passthrough is available, and why not.

use crate::tree::{LowerMount, Obstacle};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use thrufs::{Backings, Errno, Features};
use thrufs_abi::InitFlags;

/// Whether files of a served directory can be under passthrough.
#[derive(Debug, Default)]
pub(crate) struct Passthrough {
    /// Set once the connection has started; no passthrough before.
    settled: OnceLock<Result<Backings, Obstacle>>,
    /// The first registration failed with an error that holds for all files.
    refused: OnceLock<Obstacle>,
    warned: AtomicBool,
}

impl Passthrough {
    /// Decides for the connection; `privileged` says whether this process seems to be allowed to register
    /// files. Trying has to wait for the first file: the kernel may still be processing the answer to INIT.
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

    /// Decides for a connection whose kernel opens files by itself.
    pub(crate) fn exclude(&self) {
        tracing::info!("{}", Obstacle::OpenedByKernel);
        let _ = self.settled.set(Err(Obstacle::OpenedByKernel));
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

    /// For registrations that a process which died has made.
    pub(crate) fn backings_of_the_last(&self) -> thrufs::Result<&Backings> {
        self.backings().map_err(|_| Errno::ENOTCONN)
    }

    /// Why a file could not be registered; logged once if that concerns more than this file.
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
                mount.log_once(Obstacle::Stacked);
                Obstacle::Stacked
            }
            error => {
                if !self.warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "a file cannot be registered for passthrough: {error} (logged once)"
                    );
                }
                Obstacle::Refused(error)
            }
        }
    }

    /// Drops all registrations: the connection has ended.
    pub(crate) fn end(&self) {
        if let Some(Ok(backings)) = self.settled.get() {
            backings.give_up_all();
        }
    }

    /// Whether it was agreed on.
    pub(crate) fn is_available(&self) -> bool {
        self.backings().is_ok()
    }

    pub(crate) fn registered(&self) -> usize {
        self.backings().map_or(0, Backings::registered)
    }

    /// Whether files on this mount may be under passthrough, as far as known.
    pub(crate) fn permits(&self, mount: &LowerMount) -> Result<(), Obstacle> {
        self.backings()?;
        if mount.is_remote {
            mount.log_once(Obstacle::Remote);
            Err(Obstacle::Remote)
        } else if mount.is_stacked() {
            Err(Obstacle::Stacked)
        } else {
            Ok(())
        }
    }
}

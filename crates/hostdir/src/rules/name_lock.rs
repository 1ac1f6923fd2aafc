//! One change of names after the other, where rules redact or hide.
//!
//! A rename is judged by the paths of both ends and of what lies there, and carried out a moment later.
//! Another rename in between, of a directory above or of the file itself, would make it one that nobody
//! has judged. So renames, links and removals wait for each other: in this process by a mutex, and with
//! the other servers of the same source (mounts, workers of shares) by a `flock(2)` on its root. What is
//! changed beneath, by others or through a server of another directory, does not wait: so a rename looks
//! again afterwards ([`rename`](crate::rename)).
//!
//! Where the file system of the source has no such locks, servers do not know of each other.

use crate::host::Host;
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use thrufs::{Context, Errno, Result};

/// How long a change waits for others before it fails.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often it asks whether another server has finished.
const INTERVAL: Duration = Duration::from_millis(1);

/// The root of the source, opened once for the lock. Nothing where there is no policy.
#[derive(Debug, Default)]
pub(super) struct NameLock(Mutex<Option<OwnedFd>>);

/// While it lasts, nobody else changes names.
#[derive(Debug)]
pub(crate) struct NameLockGuard<'a> {
    locked: MutexGuard<'a, Option<OwnedFd>>,
}

impl Drop for NameLockGuard<'_> {
    fn drop(&mut self) {
        if let Some(root) = &*self.locked {
            let _ = rustix::fs::flock(root, FlockOperation::NonBlockingUnlock);
        }
    }
}

impl NameLock {
    /// # Errors
    ///
    /// Those of opening the root.
    pub(super) fn open(&self, root: impl AsFd) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        *self.0.lock() = Some(rustix::fs::openat(root, c".", flags, Mode::empty())?);
        Ok(())
    }

    fn lock(&self, context: &Context<'_>) -> Result<NameLockGuard<'_>> {
        let locked = match self.0.try_lock() {
            Some(locked) => locked,
            None => {
                context.require_blocking()?;
                self.0.try_lock_for(PATIENCE).ok_or(Errno::EBUSY)?
            }
        };
        let begun = Instant::now();
        while let Some(root) = &*locked {
            match rustix::fs::flock(root, FlockOperation::NonBlockingLockExclusive) {
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    context.require_blocking()?;
                    if begun.elapsed() >= PATIENCE {
                        return Err(Errno::EBUSY);
                    }
                    std::thread::sleep(INTERVAL);
                }
                Err(rustix::io::Errno::INTR) => {}
                // Or there are no such locks (NFS, some FUSE).
                Ok(()) | Err(_) => break,
            }
        }
        Ok(NameLockGuard { locked })
    }
}

impl Host {
    /// Waits until nobody else changes names, where rules rely on that.
    ///
    /// # Errors
    ///
    /// `EBUSY` when that takes longer than two seconds.
    pub(crate) fn lock_names(&self, context: &Context<'_>) -> Result<Option<NameLockGuard<'_>>> {
        if !self.rules.rely_on_names() {
            return Ok(None);
        }
        self.rules.name_lock.lock(context).map(Some)
    }
}

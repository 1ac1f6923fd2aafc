//! Serializes changes of names where rules redact or hide.
//!
//! A rename is decided by the paths of both ends and what lies there, and carried out a moment later. Another
//! rename in between, of a directory above or of the file itself, would evade the decision. So renames, links
//! and removals take this lock: a mutex in this process, and a `flock(2)` on the root of the source between
//! the servers of it (mounts, share workers). Changes on the host, or through a server of another directory,
//! do not take it: so a rename checks again afterwards (`requests::rename`).
//!
//! Without `flock(2)` on the file system of the source, servers are not serialized with each other.

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use thrufs::{Context, Errno, Result};

/// How long a change waits for the lock before it fails.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often it tries the `flock(2)`.
const INTERVAL: Duration = Duration::from_millis(1);

/// The root of the source, opened for the lock. `None` without a policy.
#[derive(Debug, Default)]
pub(super) struct NameLock(Mutex<Option<OwnedFd>>);

/// While it exists, no other server changes names.
#[derive(Debug)]
pub(crate) struct NameLockGuard<'a>(MutexGuard<'a, Option<OwnedFd>>);

impl Drop for NameLockGuard<'_> {
    fn drop(&mut self) {
        if let Some(root) = &*self.0 {
            let _ = rustix::fs::flock(root, FlockOperation::NonBlockingUnlock);
        }
    }
}

impl NameLock {
    /// Errors: those of opening the root.
    pub(super) fn open(&self, root: impl AsFd) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        *self.0.lock() = Some(rustix::fs::openat(root, c".", flags, Mode::empty())?);
        Ok(())
    }

    pub(super) fn lock(&self, context: &Context<'_>) -> Result<NameLockGuard<'_>> {
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
                // Also where there are no such locks (NFS, some FUSE).
                Ok(()) | Err(_) => break,
            }
        }
        Ok(NameLockGuard(locked))
    }
}

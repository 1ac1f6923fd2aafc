//! Serializes changes of names where rules redact or hide.
//!
//! A rename is decided by the paths of both ends and what lies there, and carried out a moment later. Another
//! rename in between, of a directory above or of the file itself, would evade the decision. So renames, links
//! and removals take this lock: a mutex in this process, and a `flock(2)` on the root of the source between
//! the servers of it (mounts, share workers). Changes on the host, or through a server of another directory,
//! do not take it: so a rename checks again afterwards (`requests::rename`).
//!
//! A process that is killed may hold it until all of its threads have ended, one of which may wait for an answer of
//! the next one. So that one goes on with the same open file, by which it has the lock.
//!
//! Without `flock(2)` on the file system of the source, servers are not serialized with each other.

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thrufs::{Context, Errno, Result};

/// How long a change waits for the lock before it fails.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often it tries the `flock(2)`.
const INTERVAL: Duration = Duration::from_millis(1);

/// The root of the source, opened for the lock. `None` without a policy.
#[derive(Debug, Default)]
pub(super) struct NameLock {
    root: Mutex<Option<OwnedFd>>,
    /// Another process can go on with it.
    is_stored: AtomicBool,
}

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
        *self.root.lock() = Some(rustix::fs::openat(root, c".", flags, Mode::empty())?);
        Ok(())
    }

    /// Goes on with the open file of a process that died.
    pub(super) fn go_on(&self, root: OwnedFd) {
        *self.root.lock() = Some(root);
        self.is_stored.store(true, Ordering::Relaxed);
    }

    /// `store` is called once, before the first.
    pub(super) fn lock(
        &self,
        context: &Context<'_>,
        store: impl FnOnce(BorrowedFd<'_>),
    ) -> Result<NameLockGuard<'_>> {
        let locked = match self.root.try_lock() {
            Some(locked) => locked,
            None => {
                context.require_blocking()?;
                self.root.try_lock_for(PATIENCE).ok_or(Errno::EBUSY)?
            }
        };
        if let Some(root) = &*locked
            && !self.is_stored.swap(true, Ordering::Relaxed)
        {
            store(root.as_fd());
        }
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

//! Lower files that the kernel may use by itself (FUSE passthrough, Linux 6.9).
//!
//! A file system [registers](Backings::register) a lower file and names the registration in its
//! answer to OPEN or CREATE; from then on the kernel reads, writes, splices and maps that file
//! without asking. It is opened anew for every open file, with the credentials that the registering
//! thread had, whoever the caller is. So those credentials decide about quotas, reserved blocks and
//! set-id bits.
//!
//! All open files of one node must name the same registration, and either all go through or none:
//! else the caller's open fails with EIO.

use crate::errno::{Errno, Result};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use thrufs_abi::BackingId;
use thrufs_sys::fuse_dev;

/// The backing files of one connection. Clones stand for the same connection, and do not keep its
/// device open.
#[derive(Clone, Debug)]
pub struct Backings {
    device: Weak<OwnedFd>,
    registered: Arc<Mutex<HashSet<i32>>>,
}

impl Backings {
    pub(crate) fn new(device: &Arc<OwnedFd>) -> Backings {
        Backings {
            device: Arc::downgrade(device),
            registered: Arc::default(),
        }
    }

    /// Those of no connection: every registration fails with ENOTCONN. For tests of file systems
    /// without a kernel.
    pub fn disconnected() -> Backings {
        Backings {
            device: Weak::new(),
            registered: Arc::default(),
        }
    }

    /// Registers a lower file. An `O_PATH` descriptor will do, and is to be preferred: any other
    /// keeps the file open for reading or writing as long as the registration stands. The descriptor
    /// may be closed afterwards.
    ///
    /// # Errors
    ///
    /// `EPERM` without CAP_SYS_ADMIN in the initial user namespace or when PASSTHROUGH is not in
    /// force, `EISDIR` or `EINVAL` for what is no regular file, `ELOOP` when the lower file system is
    /// stacked deeper than was negotiated, `ENOTCONN` when the connection has ended.
    pub fn register(&self, file: impl AsFd) -> Result<Backing> {
        let device = self.device.upgrade().ok_or(Errno::ENOTCONN)?;
        let id = fuse_dev::backing_open(&*device, file.as_fd())?;
        self.registered.lock().insert(id);
        Ok(Backing {
            id: BackingId(id),
            backings: self.clone(),
        })
    }

    /// How many registrations stand.
    pub fn registered(&self) -> usize {
        self.registered.lock().len()
    }

    /// Takes all registrations back. To be called when the connection has ended: the kernel keeps
    /// them, and the mounts that their files lie on busy, until it has done away with the connection,
    /// which takes it a while over io_uring.
    pub fn give_up_all(&self) {
        let ids = std::mem::take(&mut *self.registered.lock());
        for id in ids {
            self.give_up(id);
        }
    }

    fn give_up(&self, id: i32) {
        // Without the connection there is no registration either.
        if let Some(device) = self.device.upgrade()
            && let Err(error) = fuse_dev::backing_close(&*device, id)
        {
            tracing::debug!(id, %error, "cannot close a backing id");
        }
    }
}

/// A registered lower file; dropping it takes the registration back. Files that are open through it
/// stay open, but new ones can no longer be opened the same way while they are.
#[derive(Debug)]
pub struct Backing {
    id: BackingId,
    backings: Backings,
}

impl Backing {
    /// What the answer to OPEN names it by.
    pub fn id(&self) -> BackingId {
        self.id
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let stood = self.backings.registered.lock().remove(&self.id.0);
        if stood {
            self.backings.give_up(self.id.0);
        }
    }
}

/// What a session does for its file system, from [`FileSystem::started`] on.
///
/// [`FileSystem::started`]: crate::FileSystem::started
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Services {
    /// Tells the kernel of changes that it cannot see.
    pub notifier: crate::Notifier,
    /// Registers lower files for passthrough.
    pub backings: Backings,
}

impl Services {
    pub(crate) fn new(notifier: crate::Notifier, backings: Backings) -> Services {
        Services { notifier, backings }
    }

    /// Those of a transport that has no way to tell the kernel anything (virtio-fs): every
    /// notification and every registration fails with ENOTCONN.
    pub fn unavailable() -> Services {
        Services::new(crate::Notifier::unavailable(), Backings::disconnected())
    }

    /// Those of no connection, for tests of file systems without a kernel.
    pub fn disconnected() -> Services {
        Services::new(crate::Notifier::disconnected(), Backings::disconnected())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_connection_nothing_is_registered() {
        let backings = Backings::disconnected();
        let file = tempfile::tempfile().unwrap();
        assert_eq!(backings.register(&file).unwrap_err(), Errno::ENOTCONN);
        assert_eq!(backings.registered(), 0);
    }
}

//! Lower files that the kernel uses without the server (FUSE passthrough, Linux 6.9).
//!
//! A file system [registers](Backings::register) a lower file and names the registration in its reply to
//! OPEN or CREATE; from then on the kernel reads, writes, splices and maps that file itself. It opens it
//! anew for every open file, with the credentials of the registering thread, not the caller's: those
//! decide about quotas, reserved blocks and set-id bits.
//!
//! All open files of one node must name the same registration or none: else the open fails with EIO.

use crate::errno::{Errno, Result};
use crate::window::WindowCoverage;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use thrufs_abi::BackingId;
use thrufs_sys::fuse_dev;

/// The backing files of one connection. Does not keep its device open. Clones are the same.
#[derive(Clone, Debug, Default)]
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

    /// Without a connection: every registration fails with ENOTCONN. For tests of file systems.
    pub fn disconnected() -> Backings {
        Backings::default()
    }

    /// Registers a lower file. An `O_PATH` descriptor is preferred: any other keeps the file open for
    /// reading or writing until the registration is dropped. The descriptor may be closed afterwards.
    ///
    /// # Errors
    /// `EPERM` without CAP_SYS_ADMIN in the initial user namespace or without PASSTHROUGH, `EISDIR` or
    /// `EINVAL` for what is no regular file, `ELOOP` when the lower file system is stacked deeper than was
    /// negotiated, `ENOTCONN` when the connection has ended.
    pub fn register(&self, file: impl AsFd) -> Result<Backing> {
        let device = self.device.upgrade().ok_or(Errno::ENOTCONN)?;
        let id = fuse_dev::backing_open(&*device, file.as_fd())?;
        self.registered.lock().insert(id);
        Ok(Backing {
            id: BackingId(id),
            backings: self.clone(),
        })
    }

    /// Goes on with the registration of a process that died, on the same connection.
    ///
    /// # Errors
    /// `ENOTCONN` without a connection, `EEXIST` for one that is known here, `EINVAL` for what is none.
    pub fn adopt(&self, id: BackingId) -> Result<Backing> {
        if self.device.strong_count() == 0 {
            return Err(Errno::ENOTCONN);
        }
        if id.0 <= 0 {
            return Err(Errno::EINVAL);
        }
        if !self.registered.lock().insert(id.0) {
            return Err(Errno::EEXIST);
        }
        let backings = self.clone();
        Ok(Backing { id, backings })
    }

    /// Ends those registrations up to `highest` that a process which died has left, and that were not
    /// [adopted](Self::adopt): one system call for each number.
    pub fn give_up_others(&self, highest: BackingId) {
        for id in 1..=highest.0 {
            let Some(device) = self.device.upgrade() else {
                return;
            };
            if !self.registered.lock().contains(&id) {
                // Most have ended.
                let _ = fuse_dev::backing_close(&*device, id);
            }
        }
    }

    /// The number of registrations.
    pub fn registered(&self) -> usize {
        self.registered.lock().len()
    }

    /// Drops all registrations, at the end of the connection. The kernel keeps them, and their file
    /// systems busy, until it has torn the connection down, which takes a while over io_uring.
    pub fn give_up_all(&self) {
        let ids = std::mem::take(&mut *self.registered.lock());
        for id in ids {
            self.give_up(id);
        }
    }

    fn give_up(&self, id: i32) {
        // The registrations end with the connection.
        if let Some(device) = self.device.upgrade()
            && let Err(error) = fuse_dev::backing_close(&*device, id)
        {
            tracing::debug!(id, %error, "cannot close a backing id");
        }
    }
}

/// A registered lower file; dropping it ends the registration. Files that were opened with it stay open;
/// until they are closed, the kernel opens no others that way.
#[derive(Debug)]
pub struct Backing {
    id: BackingId,
    backings: Backings,
}

impl Backing {
    /// Its name in the reply to OPEN or CREATE.
    pub fn id(&self) -> BackingId {
        self.id
    }

    /// Leaves the registration to the caller: it stays until it is [adopted](Backings::adopt) again and dropped, or
    /// until the connection ends.
    pub fn into_id(self) -> BackingId {
        self.backings.registered.lock().remove(&self.id.0);
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

/// A session's services for its file system, from [`FileSystem::started`] on.
///
/// [`FileSystem::started`]: crate::FileSystem::started
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Services {
    /// Sends notifications to the kernel.
    pub notifier: crate::Notifier,
    /// Registers lower files for passthrough.
    pub backings: Backings,
    /// The DAX window, if there is one.
    pub window: Option<Arc<dyn WindowCoverage>>,
}

impl Services {
    pub(crate) fn new(notifier: crate::Notifier, backings: Backings) -> Services {
        Services {
            notifier,
            backings,
            window: None,
        }
    }

    /// The same with a DAX window.
    #[must_use]
    pub fn with_window(self, window: Option<Arc<dyn WindowCoverage>>) -> Services {
        Services { window, ..self }
    }

    /// For a transport without notifications (virtio-fs): every notification and every registration
    /// fails with ENOTCONN.
    pub fn unavailable() -> Services {
        Services::new(crate::Notifier::unavailable(), Backings::disconnected())
    }

    /// Without a connection, for tests of file systems.
    pub fn disconnected() -> Services {
        Services::new(crate::Notifier::disconnected(), Backings::disconnected())
    }
}

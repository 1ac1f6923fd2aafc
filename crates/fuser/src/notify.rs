//! Notifications to the kernel, and files that it reads and writes itself.

use crate::INodeNo;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use thrufs::{Backing, Backings, NodeId};

/// A waiting `poll(2)`.
#[derive(Copy, Clone, Debug)]
pub struct PollHandle(
    /// The kernel's number.
    pub u64,
);

/// Wakes those who wait in a `poll(2)`.
#[derive(Clone)]
pub struct PollNotifier {
    pub(crate) handle: PollHandle,
    pub(crate) notifier: Notifier,
}

impl PollNotifier {
    /// The handle, for [`Notifier::poll`].
    pub fn handle(&self) -> PollHandle {
        self.handle
    }

    /// Wakes them.
    ///
    /// # Errors
    /// As all methods of [`Notifier`].
    pub fn notify(self) -> io::Result<()> {
        self.notifier.poll(self.handle)
    }
}

impl std::fmt::Debug for PollNotifier {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "PollNotifier({:?})", self.handle)
    }
}

/// Sends notifications: [`thrufs::Notifier`]. They are queued and written in order by a thread of their own, so any
/// thread may send one, whatever locks it holds.
///
/// All methods fail with EAGAIN when 8,192 are queued, and with ENOTCONN once the session has ended.
#[derive(Debug, Clone)]
pub struct Notifier(pub(crate) thrufs::Notifier);

impl Notifier {
    /// Wakes those who wait in a `poll(2)`.
    ///
    /// # Errors
    /// See the type.
    pub fn poll(&self, handle: PollHandle) -> io::Result<()> {
        Ok(self.0.poll_wakeup(handle.0.into())?)
    }

    /// A name has another inode now, or none.
    ///
    /// # Errors
    /// See the type; ENAMETOOLONG.
    pub fn inval_entry(&self, parent: INodeNo, name: &OsStr) -> io::Result<()> {
        Ok(self
            .0
            .inval_entry(NodeId(parent.0), name.as_bytes(), false)?)
    }

    /// Attributes have changed, and `len` bytes of the data from `offset` on; 0 is all.
    ///
    /// # Errors
    /// See the type.
    pub fn inval_inode(&self, ino: INodeNo, offset: i64, len: i64) -> io::Result<()> {
        Ok(self.0.inval_inode(NodeId(ino.0), offset, len)?)
    }

    /// Puts data into the page cache.
    ///
    /// # Errors
    /// See the type.
    pub fn store(&self, ino: INodeNo, offset: u64, data: &[u8]) -> io::Result<()> {
        Ok(self.0.store(NodeId(ino.0), offset, data)?)
    }

    /// A name was removed; those who watch it by inotify(7) are told.
    ///
    /// # Errors
    /// See the type; ENAMETOOLONG.
    pub fn delete(&self, parent: INodeNo, child: INodeNo, name: &OsStr) -> io::Result<()> {
        let (parent, child) = (NodeId(parent.0), NodeId(child.0));
        Ok(self.0.delete(parent, child, name.as_bytes())?)
    }
}

/// A file that is registered for passthrough, until this is dropped.
#[derive(Debug)]
pub struct BackingId(Backed);

#[derive(Debug)]
enum Backed {
    Registered(Backing),
    /// No registration of this connection.
    Unknown(u32),
}

impl BackingId {
    pub(crate) fn open(backings: &Backings, file: impl AsFd) -> io::Result<BackingId> {
        let backing = backings.register(file)?;
        Ok(BackingId(Backed::Registered(backing)))
    }

    pub(crate) fn wrap(backings: &Backings, id: u32) -> BackingId {
        let adopted = backings.adopt(thrufs::BackingId(id as i32));
        BackingId(adopted.map_or(Backed::Unknown(id), Backed::Registered))
    }

    pub(crate) fn id(&self) -> thrufs::BackingId {
        match &self.0 {
            Backed::Registered(backing) => backing.id(),
            Backed::Unknown(id) => thrufs::BackingId(*id as i32),
        }
    }

    /// The kernel's number. The registration stays until the connection ends, or until it is taken back by
    /// `wrap_backing` of a reply.
    pub fn into_raw(self) -> u32 {
        match self.0 {
            Backed::Registered(backing) => backing.into_id().0 as u32,
            Backed::Unknown(id) => id,
        }
    }
}

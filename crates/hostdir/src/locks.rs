//! Locks shared with other users of the tree beneath (`locks=shared`).
//!
//! `flock(2)`: a client's open file has one lower open file, and the lock is that one's.
//!
//! POSIX and OFD locks: each owner on each inode has a lower open file of its own, on which its
//! locks are OFD locks. They conflict with those of other owners here and of anybody beneath, they
//! merge and split as an owner's own locks do, and they are gone when the file is closed: at the
//! FLUSH of a POSIX owner, and at the RELEASE of the open file through which an OFD owner locked.
//! The lower kernel sees no processes, so it finds no deadlocks among POSIX locks: a named limit.

use crate::host::Host;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use thrufs::{Context, Errno, LockArgs, Result};
use thrufs_abi::{FileHandle, LockOwner, NodeId};
use thrufs_sys::lock::{self, LockKind, RangeLock};

/// Most owners with shared locks at once: each costs a descriptor.
const OWNERS_MAX: usize = 8192;

struct OwnerFile {
    fd: OwnedFd,
    /// The open file through which the owner locked first.
    handle: FileHandle,
    pid: u32,
}

#[derive(Default)]
pub(crate) struct LockOwners {
    files: Mutex<HashMap<(NodeId, LockOwner), Arc<OwnerFile>>>,
}

impl LockOwners {
    pub(crate) fn len(&self) -> usize {
        self.files.lock().len()
    }

    fn get(&self, node: NodeId, owner: LockOwner) -> Option<Arc<OwnerFile>> {
        self.files.lock().get(&(node, owner)).cloned()
    }

    fn insert(&self, node: NodeId, owner: LockOwner, file: OwnerFile) -> Result<Arc<OwnerFile>> {
        let mut files = self.files.lock();
        if files.len() >= OWNERS_MAX {
            return Err(Errno::ENOLCK);
        }
        Ok(Arc::clone(
            files.entry((node, owner)).or_insert_with(|| Arc::new(file)),
        ))
    }

    /// Drops what a POSIX owner holds on a node: it has closed a descriptor of it.
    pub(crate) fn release_owner(&self, node: NodeId, owner: LockOwner) {
        let removed = self.files.lock().remove(&(node, owner));
        drop(removed);
    }

    /// Drops what was locked through an open file that is gone.
    pub(crate) fn release_handle(&self, handle: FileHandle) {
        let mut files = self.files.lock();
        if files.is_empty() {
            return;
        }
        let removed: Vec<_> = files.extract_if(|_, file| file.handle == handle).collect();
        drop(files);
        drop(removed);
    }

    /// The process id of the one other owner on a node, when there is just one.
    fn only_other_pid(&self, node: NodeId, owner: LockOwner) -> Option<u32> {
        let files = self.files.lock();
        let mut others = files
            .iter()
            .filter(|((n, o), _)| *n == node && *o != owner)
            .map(|(_, file)| file.pid);
        let first = others.next()?;
        others.next().is_none().then_some(first)
    }
}

fn kind(args: &LockArgs) -> Result<LockKind> {
    match args.kind as i32 {
        libc::F_RDLCK => Ok(LockKind::Read),
        libc::F_WRLCK => Ok(LockKind::Write),
        libc::F_UNLCK => Ok(LockKind::Unlock),
        _ => Err(Errno::EINVAL),
    }
}

fn range(args: &LockArgs) -> Result<RangeLock> {
    Ok(RangeLock {
        kind: kind(args)?,
        start: args.start,
        end: args.end,
        pid: 0,
    })
}

impl Host {
    fn owner_file(&self, node: NodeId, args: &LockArgs) -> Result<Arc<OwnerFile>> {
        if let Some(known) = self.locks.get(node, args.owner) {
            return Ok(known);
        }
        let file = self.open_for_owner(args)?;
        self.locks.insert(node, args.owner, file)
    }

    fn open_for_owner(&self, args: &LockArgs) -> Result<OwnerFile> {
        let file = self.file(args.handle)?;
        // Both kinds of lock need a file open for them; one that cannot be written is locked with
        // what can be had.
        let fd = match self.open_again_raw(&file, libc::O_RDWR) {
            Ok(fd) => fd,
            Err(Errno::EACCES | Errno::EROFS | Errno::EPERM | Errno::ETXTBSY) => {
                self.open_again_raw(&file, libc::O_RDONLY)?
            }
            Err(error) => return Err(error),
        };
        Ok(OwnerFile {
            fd,
            handle: args.handle,
            pid: args.pid,
        })
    }

    pub(crate) fn getlk(&self, node: NodeId, args: &LockArgs) -> Result<Option<LockArgs>> {
        let wanted = range(args)?;
        let file = match self.locks.get(node, args.owner) {
            Some(known) => known,
            None => Arc::new(self.open_for_owner(args)?),
        };
        let Some(found) = lock::ofd_get(&file.fd, &wanted)? else {
            return Ok(None);
        };
        let kind = match found.kind {
            LockKind::Read => libc::F_RDLCK,
            LockKind::Write => libc::F_WRLCK,
            LockKind::Unlock => return Ok(None),
        };
        // A lock of a process beneath has its id; one of ours is an OFD lock and says -1.
        let pid = match u32::try_from(found.pid) {
            Ok(pid) => pid,
            Err(_) => self.locks.only_other_pid(node, args.owner).unwrap_or(0),
        };
        Ok(Some(LockArgs {
            start: found.start,
            end: found.end,
            kind: kind as u32,
            pid,
            ..*args
        }))
    }

    pub(crate) fn setlk(
        &self,
        context: &Context<'_>,
        node: NodeId,
        args: &LockArgs,
        wait: bool,
    ) -> Result<()> {
        if args.flock {
            let file = self.file(args.handle)?;
            let kind = kind(args)?;
            let lower = self.lower_to_lock(&file)?;
            let fd = lower.as_fd();
            return lock_or_wait(
                context,
                wait,
                || Ok(lock::flock(fd, kind)?),
                || Ok(lock::flock_wait(fd, kind)?),
            );
        }
        let range = range(args)?;
        if range.kind == LockKind::Unlock {
            return match self.locks.get(node, args.owner) {
                Some(file) => Ok(lock::ofd_set(&file.fd, &range)?),
                None => Ok(()),
            };
        }
        let file = self.owner_file(node, args)?;
        lock_or_wait(
            context,
            wait,
            || Ok(lock::ofd_set(&file.fd, &range)?),
            || Ok(lock::ofd_set_wait(&file.fd, &range)?),
        )
    }
}

/// Tries first; sleeps only if that is wanted, and then where nobody else waits for the thread.
fn lock_or_wait(
    context: &Context<'_>,
    wait: bool,
    attempt: impl Fn() -> Result<()>,
    sleep: impl Fn() -> Result<()>,
) -> Result<()> {
    match attempt() {
        Err(Errno::EAGAIN | Errno::EACCES) if wait => {
            context.require_blocking()?;
            context.interruptible(|_| sleep())
        }
        Err(Errno::EACCES) => Err(Errno::EAGAIN),
        result => result,
    }
}

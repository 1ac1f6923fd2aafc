//! Records the state that a resuming process needs, and stores descriptors that it could not open again.
//!
//! Without a [ledger](crate::ledger) and a [strongbox](crate::ledger::strongbox), all of this does nothing.

use super::inode::Inode;
use crate::files::OpenDirectory;
use crate::files::OpenFile;
use crate::files::Route;
use crate::host::Host;
use crate::judge::OpenerIds;
use crate::ledger::FileNote;
use crate::ledger::{Key, Strongbox};
use crate::policy::Redaction;
use rustix::fs::AtFlags;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs::LowerFile;
use thrufs_abi::{FileHandle, NodeId};
use thrufs_sys::lock::{self, LockKind};

impl Host {
    fn strongbox(&self) -> Option<&dyn Strongbox> {
        self.strongbox.as_deref()
    }

    /// Stores a descriptor outside this process. False if that fails: a resumed session lacks it then.
    pub(crate) fn keep(&self, key: Key, fd: BorrowedFd<'_>) -> bool {
        let Some(strongbox) = self.strongbox() else {
            return false;
        };
        match strongbox.keep(key.into(), fd) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(?key, %error, "cannot store a descriptor for the next worker");
                false
            }
        }
    }

    pub(crate) fn discard(&self, key: Key) {
        if let Some(strongbox) = self.strongbox() {
            strongbox.discard(key.into());
        }
    }

    /// A name of an inode is about to be removed. If it is the last name, or the only known one, of an open
    /// file, nothing else would lead a resuming process to it.
    pub(crate) fn keep_if_last_name(&self, inode: &Arc<Inode>) {
        if self.strongbox().is_none() || !inode.is_open() {
            return;
        }
        let Ok(descriptor) = self.descriptor(inode) else {
            return;
        };
        let flags = AtFlags::EMPTY_PATH;
        let stat = rustix::fs::statx(descriptor.as_fd(), c"", flags, crate::host::BASIC);
        let is_found_by_name = !inode.mount().has_handles();
        if stat.is_ok_and(|stat| stat.stx_nlink <= 1 || is_found_by_name) {
            self.keep_inode(inode, descriptor.as_fd());
        }
    }

    /// As [`keep_if_last_name`](Self::keep_if_last_name), for a file without a name.
    pub(crate) fn keep_inode(&self, inode: &Arc<Inode>, fd: BorrowedFd<'_>) {
        if self.strongbox().is_none() || inode.in_strongbox().load(Ordering::Relaxed) {
            return;
        }
        // O_PATH: an open file would stay busy as long as it is stored.
        let opened = self.reopen(fd, libc::O_PATH);
        let kept = opened.is_ok_and(|fd| self.keep(Key::Node(inode.node()), fd.as_fd()));
        inode.in_strongbox().store(kept, Ordering::Relaxed);
    }

    /// Takes back lookups of a node.
    pub(crate) fn forget(&self, node: NodeId, count: u64) {
        if let Some(forgotten) = self.nodes.forget(node, count)
            && forgotten.in_strongbox().swap(false, Ordering::Relaxed)
        {
            self.discard(Key::Node(node));
        }
    }

    /// The session is over and will not be resumed.
    pub(crate) fn end_notes(&self) {
        if let Some(notes) = &self.notes {
            notes.wipe();
        }
        if let Some(strongbox) = self.strongbox() {
            for (_, inode) in self.nodes.iter() {
                if inode.in_strongbox().swap(false, Ordering::Relaxed) {
                    strongbox.discard(Key::Node(inode.node()).into());
                }
            }
            for (handle, file) in self.files.iter() {
                if file.was_locked() {
                    strongbox.discard(Key::File(FileHandle(handle)).into());
                }
            }
            for (_, owner) in self.locks.all() {
                if let Some(place) = owner.place {
                    strongbox.discard(Key::Owner(place).into());
                }
            }
        }
    }

    pub(crate) fn note_file(&self, note: FileNote) {
        if let Some(notes) = &self.notes {
            notes.note_file(note);
        }
    }

    /// Records whether an open file may write to a redacted file.
    pub(crate) fn note_writing(&self, handle: FileHandle, redaction: Redaction, writes: bool) {
        if let (Some(notes), Some(file)) = (&self.notes, self.files.get(handle.0)) {
            notes.note_route(handle, Route::redacted(redaction, writes), file.flags());
        }
    }

    /// Records who opened a file, to decide again under another policy.
    pub(crate) fn note_opener(&self, handle: FileHandle, opener: OpenerIds) {
        if let Some(file) = self.files.get(handle.0) {
            file.set_opener(opener);
        }
        if let Some(notes) = &self.notes {
            notes.note_opener(handle, opener);
        }
    }

    pub(crate) fn note_opener_of_directory(&self, handle: FileHandle, opener: OpenerIds) {
        if let Some(directory) = self.directories.get(handle.0) {
            directory.set_opener(opener);
        }
        if let Some(notes) = &self.notes {
            notes.note_opener_of_directory(handle, opener);
        }
    }

    pub(crate) fn note_restored_file(&self, note: FileNote, flock: Option<LockKind>) {
        self.note_file(note);
        let file = self.files.get(note.handle.0);
        if let Some(file) = file.filter(|_| flock.is_some())
            && let Ok(lower) = self.lower(&file, false)
        {
            self.keep(Key::File(note.handle), lower.as_fd());
            self.note_flock(note.handle, flock);
        }
    }

    fn note_flock(&self, handle: FileHandle, flock: Option<LockKind>) {
        if let Some(notes) = &self.notes {
            let number = match flock {
                Some(LockKind::Read) => 1,
                Some(LockKind::Write) => 2,
                Some(LockKind::Unlock) | None => 0,
            };
            notes.note_flock(handle, number);
        }
    }

    /// Records the lock that an open file's lower file carries, or no longer carries.
    pub(crate) fn flock_taken(&self, handle: FileHandle, file: &OpenFile, kind: LockKind) {
        file.set_flock(Some(kind));
        self.note_flock(handle, Some(kind));
    }

    /// A lower file is about to carry a lock.
    pub(crate) fn keep_to_lock(&self, handle: FileHandle, lower: &LowerFile) {
        self.keep(Key::File(handle), lower.as_fd());
    }

    pub(crate) fn close_file(&self, handle: FileHandle) -> Option<Arc<OpenFile>> {
        let file = self.files.get(handle.0)?;
        if let Some(notes) = &self.notes {
            notes.forget_file(handle);
        }
        if file.was_locked() && self.strongbox().is_some() {
            // The strongbox closes its duplicate later.
            if let Some(lower) = file.kept() {
                let _ = lock::flock(&*lower, LockKind::Unlock);
            }
            self.discard(Key::File(handle));
        }
        self.files.remove(handle.0)
    }

    pub(crate) fn close_directory(&self, handle: FileHandle) -> Option<Arc<OpenDirectory>> {
        self.directories.get(handle.0)?;
        if let Some(notes) = &self.notes {
            notes.forget_directory(handle);
        }
        self.directories.remove(handle.0)
    }
}

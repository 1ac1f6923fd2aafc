//! Noting what a successor would need, and keeping what it could not open again.
//!
//! Everything here does nothing, and costs nothing, without a [ledger](crate::ledger) and a
//! [strongbox](crate::strongbox).

use crate::datapath::Route;
use crate::directories::OpenDirectory;
use crate::files::OpenFile;
use crate::host::Host;
use crate::inode::Inode;
use crate::ledger::FileNote;
use crate::policy::Redaction;
use crate::rules::Opener;
use crate::strongbox::{Key, Strongbox};
use rustix::fs::AtFlags;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thrufs::LowerFile;
use thrufs_abi::{FileHandle, NodeId};
use thrufs_sys::lock::{self, LockKind};

impl Host {
    fn strongbox(&self) -> Option<&dyn Strongbox> {
        self.config.strongbox.as_deref()
    }

    /// Has a descriptor outlive this process. If nobody can, a successor goes on without.
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

    /// A name of an inode is about to go. If it is the last, or the only one that is known, and somebody
    /// has the file open, nothing would lead a successor to it.
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

    /// As [`keep_if_last_name`](Self::keep_if_last_name), of a file that has no name.
    pub(crate) fn keep_inode(&self, inode: &Arc<Inode>, fd: BorrowedFd<'_>) {
        if self.strongbox().is_none() || inode.in_strongbox().load(Ordering::Relaxed) {
            return;
        }
        // Not the file as it is open: that would be busy as long as it is kept.
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

    /// The session is over: nobody goes on with it.
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

    /// Remembers whether an open file may write that others see redacted.
    pub(crate) fn note_writing(&self, handle: FileHandle, redaction: Redaction, writes: bool) {
        if let (Some(notes), Some(file)) = (&self.notes, self.files.get(handle.0)) {
            notes.note_route(handle, Route::redacted(redaction, writes), file.flags());
        }
    }

    /// Remembers who opened a file, for whoever judges it again.
    pub(crate) fn note_opener(&self, handle: FileHandle, opener: Opener) {
        if let Some(file) = self.files.get(handle.0) {
            file.set_opener(opener);
        }
        if let Some(notes) = &self.notes {
            notes.note_opener(handle, opener);
        }
    }

    /// As [`note_opener`](Self::note_opener).
    pub(crate) fn note_opener_of_directory(&self, handle: FileHandle, opener: Opener) {
        if let Some(directory) = self.directories.get(handle.0) {
            directory.set_opener(opener);
        }
        if let Some(notes) = &self.notes {
            notes.note_opener_of_directory(handle, opener);
        }
    }

    /// As [`note_file`](Self::note_file), with the lock that it carries.
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

    /// An open file has, or has no more, the lock that its lower file carries.
    pub(crate) fn flock_taken(&self, handle: FileHandle, file: &OpenFile, kind: LockKind) {
        file.set_flock(Some(kind));
        self.note_flock(handle, Some(kind));
    }

    /// A lower file is about to carry a lock.
    pub(crate) fn keep_to_lock(&self, handle: FileHandle, lower: &LowerFile) {
        self.keep(Key::File(handle), lower.as_fd());
    }

    /// Takes an open file out of the table.
    pub(crate) fn close_file(&self, handle: FileHandle) -> Option<Arc<OpenFile>> {
        let file = self.files.get(handle.0)?;
        if let Some(notes) = &self.notes {
            notes.forget_file(handle);
        }
        if file.was_locked() && self.strongbox().is_some() {
            // It goes on existing a while.
            if let Some(lower) = file.kept() {
                let _ = lock::flock(&*lower, LockKind::Unlock);
            }
            self.discard(Key::File(handle));
        }
        self.files.remove(handle.0)
    }

    /// Takes an open directory out of the table.
    pub(crate) fn close_directory(&self, handle: FileHandle) -> Option<Arc<OpenDirectory>> {
        self.directories.get(handle.0)?;
        if let Some(notes) = &self.notes {
            notes.forget_directory(handle);
        }
        self.directories.remove(handle.0)
    }
}

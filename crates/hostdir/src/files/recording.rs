//! Records open files and their locks for a process that resumes the session.
//!
//! Without a [ledger](crate::ledger) and an fd store, all of this does nothing.

use super::Files;
use super::left_open::LeftOpen;
use super::open_directory::OpenDirectory;
use super::open_file::{OpenFile, lock_number};
use crate::ledger::{FileNote, Key, OpenerIds, Route};
use std::os::fd::AsFd;
use std::sync::Arc;
use thrufs::BackingId;
use thrufs_abi::{FileHandle, NodeId};
use thrufs_policy::{FilePath, Redaction};
use thrufs_sys::lock::{self, LockKind};

impl Files {
    /// Records what the process that died had open.
    pub(crate) fn was_left_open(&self, node: NodeId, opened: LeftOpen) {
        self.left.record(node, opened);
    }

    /// Closes what was left open of a node that the kernel has forgotten: it knows no open file of that.
    pub(crate) fn close_left(&self, node: NodeId) {
        for opened in self.left.take(node) {
            match opened {
                LeftOpen::File(handle) => self.undo_open(handle),
                LeftOpen::Directory(handle) => drop(self.close_directory(handle)),
            }
        }
    }

    /// The session is over and will not be resumed.
    pub(crate) fn end_record(&self) {
        if let Some(tables) = &self.tree.tables {
            tables.wipe();
        }
        self.tree.end_storing();
        if let Some(fd_store) = self.tree.fd_store() {
            for (handle, file) in self.files.iter() {
                if file.was_locked() {
                    fd_store.discard(Key::File(FileHandle(handle)).into());
                }
            }
            for owner in self.locks.all() {
                if let Some(place) = owner.place {
                    fd_store.discard(Key::Owner(place).into());
                }
            }
        }
    }

    pub(crate) fn note_file(&self, note: FileNote) {
        if let Some(tables) = &self.tree.tables {
            tables.files.insert(note);
        }
    }

    pub(crate) fn note_backing(&self, id: BackingId) {
        if let Some(tables) = &self.tree.tables {
            tables.note_backing(id);
        }
    }

    /// Ends the registrations that a process which died has left, and that no open file has.
    pub(crate) fn end_backings_of_the_last(&self) {
        if let (Some(tables), Ok(backings)) =
            (&self.tree.tables, self.passthrough.backings_of_the_last())
        {
            let (backings, highest) = (backings.clone(), tables.highest_backing());
            // A system call for each number: nobody waits for it.
            let end = move || backings.give_up_others(highest);
            let thread = std::thread::Builder::new().name("thrufs-backings".into());
            if let Err(error) = thread.spawn(end) {
                tracing::warn!(%error, "registrations of the process that died stay");
            }
        }
    }

    /// Records whether an open file may write to a redacted file.
    pub(crate) fn note_writing(&self, handle: FileHandle, redaction: Redaction, writes: bool) {
        if let (Some(tables), Some(file)) = (&self.tree.tables, self.files.get(handle.0)) {
            let path = FilePath::redacted(redaction, None);
            tables
                .files
                .set_route(handle, Route { file: path, writes }, file.flags());
        }
    }

    /// Records who opened a file, to decide again under another policy.
    pub(crate) fn note_opener(&self, handle: FileHandle, opener: OpenerIds) {
        if let Some(file) = self.files.get(handle.0) {
            file.set_opener(opener);
        }
        if let Some(tables) = &self.tree.tables {
            tables.files.set_opener(handle, opener);
        }
    }

    pub(crate) fn note_opener_of_directory(&self, handle: FileHandle, opener: OpenerIds) {
        if let Some(directory) = self.directories.get(handle.0) {
            directory.set_opener(opener);
        }
        if let Some(tables) = &self.tree.tables {
            tables.directories.set_opener(handle, opener);
        }
    }

    pub(crate) fn note_restored_file(&self, note: FileNote, flock: Option<LockKind>) {
        self.note_file(note);
        if let (Some(kind), Some(file)) = (flock, self.files.get(note.handle.0))
            && let Ok(lower) = self.lower(&file, false)
        {
            self.tree.keep(Key::File(note.handle), lower.as_fd());
            self.note_flock(note.handle, kind);
        }
    }

    /// Records the lock that an open file's lower file carries, or no longer carries.
    pub(crate) fn note_flock(&self, handle: FileHandle, kind: LockKind) {
        if let Some(tables) = &self.tree.tables {
            tables.files.set_flock(handle, lock_number(kind));
        }
    }

    pub(crate) fn close_file(&self, handle: FileHandle) -> Option<Arc<OpenFile>> {
        let file = self.files.get(handle.0)?;
        if let Some(tables) = &self.tree.tables {
            tables.files.remove(handle);
        }
        if file.was_locked() && self.tree.fd_store().is_some() {
            // The fd store closes its duplicate later.
            if let Some(lower) = file.kept() {
                let _ = lock::flock(&*lower, LockKind::Unlock);
            }
            self.tree.discard(Key::File(handle));
        }
        self.files.remove(handle.0)
    }

    /// Closes a file whose open failed after all.
    pub(crate) fn undo_open(&self, handle: FileHandle) {
        if let Some(file) = self.close_file(handle) {
            let inode = Arc::clone(file.inode());
            drop(file);
            self.tree.was_closed(&inode);
        }
    }

    pub(crate) fn close_directory(&self, handle: FileHandle) -> Option<Arc<OpenDirectory>> {
        self.directories.get(handle.0)?;
        if let Some(tables) = &self.tree.tables {
            tables.directories.remove(handle);
        }
        self.directories.remove(handle.0)
    }
}

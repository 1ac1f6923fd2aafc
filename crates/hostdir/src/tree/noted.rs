//! What is noted of an inode for later requests: its mode, locks, and what the kernel above has cached of its data.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// As bits.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Noted {
    /// Its last known mode lets somebody execute it.
    Executable = 1,
    /// [`set_group_id_stays`], by its last known mode.
    SetGroupIdStays = 1 << 1,
    /// Somebody has set a POSIX lock, through this mount.
    Locked = 1 << 2,
    /// A program that writes it has tried to lock a range, so that it takes turns with the host.
    TakesTurns = 1 << 3,
    /// An open was answered so that it has no cache, while others may have one.
    HasUncached = 1 << 4,
    /// The kernel above has read pages of it.
    PagesRead = 1 << 5,
    /// A program above that locks ranges has stored to it in a shared map.
    StoredTo = 1 << 6,
    /// A name was removed while it was open.
    LostAName = 1 << 7,
}

#[derive(Default)]
pub(crate) struct NotedBits(AtomicU8);

impl NotedBits {
    pub(crate) fn has(&self, noted: Noted) -> bool {
        self.0.load(Ordering::Relaxed) & noted as u8 != 0
    }

    pub(crate) fn set(&self, noted: Noted) {
        self.0.fetch_or(noted as u8, Ordering::Relaxed);
    }

    /// To be called before the kernel above is given pages. It costs those files that had an open without a cache.
    pub(crate) fn set_pages_read(&self) {
        if self.has(Noted::HasUncached) {
            self.0.fetch_or(Noted::PagesRead as u8, Ordering::SeqCst);
        }
    }

    /// Whether the kernel above was given pages since this was last asked.
    pub(crate) fn take_pages_read(&self) -> bool {
        let pages_read = Noted::PagesRead as u8;
        self.0.fetch_and(!pages_read, Ordering::SeqCst) & pages_read != 0
    }

    /// Records a mode that was reported, or that the lower file has.
    pub(crate) fn record_mode(&self, mode: u32) {
        let (stays, executable) = (Noted::SetGroupIdStays as u8, Noted::Executable as u8);
        let mut by_mode = u8::from(mode & 0o111 != 0) * executable;
        by_mode |= u8::from(set_group_id_stays(mode)) * stays;
        let noted = |noted| Some(noted & !(stays | executable) | by_mode);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.0.fetch_update(set, fetch, noted);
    }
}

/// Whether a file with this mode has the set-group-id bit without execution by its group. It is no
/// privilege then (it meant mandatory locking, once), and FUSE wants it kept on every write. The lower file
/// system would drop it unless the writer, which is this thread, is in the file's group.
pub(crate) fn set_group_id_stays(mode: u32) -> bool {
    mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID
}

/// The version of the data that the kernel above has cached; 0 for none.
#[derive(Default)]
pub(crate) struct CachedVersion(AtomicU64);

impl CachedVersion {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, version: u64) {
        self.0.store(version, Ordering::Relaxed);
    }

    /// Returns the one before.
    pub(crate) fn replace(&self, version: u64) -> u64 {
        self.0.swap(version, Ordering::Relaxed)
    }
}

//! Redacted files: reading and writing them.
//!
//! A scan of the file ([`redact`](thrufs_redact)) finds what is to be redacted, and makes a [`view`], which
//! is valid as long as the file does not change. Readers see no byte that was not scanned in that version,
//! and nothing while the file may be changing.
//!
//! **Writing.** One byte in the right place makes a parser take a position for part of the picture. So
//! existing content cannot be changed: only an open file that finds the file empty, or empties it, may
//! write ([`Filter::begin_writing`]), until another writer changes the file, through this server, another
//! one, or on the host: before each write, the file has to be as the last write left it. Each write holds a
//! write lease, so that no other process has the file open, and an open on the host waits for the end of
//! the write. Such a writer can expose only what it has written itself. As long as it has the file open, no
//! other open file reads it.
//!
//! All opens of a file share one [`Filter`].

mod look;
mod view;
mod waiting;

use crate::ledger::StateTables;
use crate::stat::stat_open;
use parking_lot::Mutex;
use rustix::fs::Statx;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use thrufs::{Errno, LowerFile, Result};
use thrufs_abi::FileHandle;
use thrufs_policy::Redaction;
use thrufs_sys::lease;
use view::Version;
pub(crate) use view::View;
pub(crate) use waiting::{NotYet, Waiting};

/// Most attempts to write to a file that another process has open, and the wait before the second one; the
/// later ones wait longer, two seconds in all.
const ATTEMPTS_MAX: u32 = 48;
const PAUSE: Duration = Duration::from_millis(2);

/// How one file is redacted, and which open file may write to it.
#[derive(Debug)]
pub(crate) struct Filter {
    pub(crate) redaction: Redaction,
    /// The version for which the view is valid.
    view: Mutex<Option<(Version, View)>>,
    writer: Mutex<Option<Writer>>,
    /// Records for a resuming process how the file was left.
    tables: Option<Arc<StateTables>>,
}

/// The only open file that may write.
#[derive(Clone, Copy, Debug)]
struct Writer {
    handle: FileHandle,
    /// The version that its last write left. Any other version is another writer's.
    left: Version,
}

impl Writer {
    /// Whether the file is as its last write left it. An empty file may also have gained or lost a name,
    /// but a process that emptied it changed the modification time.
    fn has_left(&self, found: Version) -> bool {
        self.left == found || self.left.is_empty_as(found)
    }
}

impl Filter {
    pub(crate) fn new(redaction: Redaction, tables: Option<Arc<StateTables>>) -> Filter {
        Filter {
            redaction,
            view: Mutex::new(None),
            writer: Mutex::new(None),
            tables,
        }
    }

    /// Makes `handle` the only writer, if the file is empty. `notify` is first called with the previous
    /// writer, if any. Fails with the rule's error, if the file is not empty.
    pub(crate) fn begin_writing(
        &self,
        handle: FileHandle,
        file: &LowerFile,
        notify: impl FnOnce(Option<FileHandle>),
    ) -> Result<()> {
        let mut writer = self.writer.lock();
        let left = Version::of(&stat_open(file)?);
        if !left.is_empty() {
            return Err(self.redaction.errno);
        }
        notify(writer.map(|writer| writer.handle));
        *writer = Some(Writer { handle, left });
        self.note_left(handle, Some(left));
        Ok(())
    }

    pub(crate) fn is_written_by(&self, handle: FileHandle) -> bool {
        self.writer.lock().is_some_and(|w| w.handle == handle)
    }

    /// Makes `handle` the writer of the file as `stat` describes it, as in another process before.
    pub(crate) fn go_on_writing(&self, handle: FileHandle, stat: &Statx) {
        let left = Version::of(stat);
        *self.writer.lock() = Some(Writer { handle, left });
    }

    /// Sets the version that the process before has left. If it died during a change, that version is
    /// unknown, and no handle may write.
    pub(crate) fn was_left(&self, handle: FileHandle, changed: Option<Duration>) {
        let mut slot = self.writer.lock();
        if let Some(writer) = slot.as_mut().filter(|writer| writer.handle == handle) {
            match changed {
                Some(changed) => writer.left.changed = changed,
                None => *slot = None,
            }
        }
    }

    /// `None` while a change is under way.
    fn note_left(&self, handle: FileHandle, left: Option<Version>) {
        if let Some(tables) = &self.tables {
            tables.files.set_left(handle, left.map(|left| left.changed));
        }
    }

    /// Makes a change by `writer`, and records the version that it leaves.
    fn carry_out<T>(
        &self,
        writer: &mut Writer,
        file: BorrowedFd<'_>,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.note_left(writer.handle, None);
        let changed = change();
        writer.left = Version::of(&stat_open(file)?);
        self.note_left(writer.handle, Some(writer.left));
        changed
    }

    /// Changes the file through `handle`, under a write lease where the file system has leases. `close`
    /// closes other lower files of this server. Fails with the rule's error when this handle may not write,
    /// `EBUSY` when another process has the file open for too long or too many requests wait, those of
    /// `change`.
    pub(crate) fn write<T>(
        &self,
        (waiting, uid): (&Waiting, Option<u32>),
        handle: FileHandle,
        file: &LowerFile,
        close: impl Fn(),
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 {
                close();
            }
            if attempt > 1 {
                waiting.pause(uid, PAUSE * (attempt - 1))?;
            }
            let mut slot = self.writer.lock();
            let exclusive = lease::exclusive(file.as_fd());
            let found = Version::of(&stat_open(file)?);
            let writer = slot
                .as_mut()
                .filter(|w| w.handle == handle && w.has_left(found));
            let writer = writer.ok_or(self.redaction.errno)?;
            // An error: there are no leases.
            if !matches!(exclusive, Ok(None)) {
                return self.carry_out(writer, file.as_fd(), change);
            }
        }
        Err(Errno::EBUSY)
    }

    pub(crate) fn writer(&self) -> Option<FileHandle> {
        self.writer.lock().map(|writer| writer.handle)
    }

    /// Ends the right to write if another writer has changed the file; returns the handle that had it.
    pub(crate) fn end_writing(&self, found: &Statx) -> Option<FileHandle> {
        let mut slot = self.writer.lock();
        let ended = slot.filter(|writer| !writer.has_left(Version::of(found)))?;
        *slot = None;
        self.note_left(ended.handle, None);
        Some(ended.handle)
    }

    /// Changes attributes of the file, and with them its times. The writer keeps its right.
    pub(crate) fn change_attributes<T>(
        &self,
        file: BorrowedFd<'_>,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut slot = self.writer.lock();
        let found = Version::of(&stat_open(file)?);
        match slot.as_mut().filter(|writer| writer.has_left(found)) {
            Some(writer) => self.carry_out(writer, file, change),
            None => change(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thrufs::NoWait;

    pub(super) fn filter() -> Filter {
        let redaction = Redaction {
            errno: Errno::EACCES,
            content: Default::default(),
        };
        Filter::new(redaction, None)
    }

    #[test]
    fn death_during_a_write_ends_the_right_to_write() {
        let file = tempfile::tempfile().unwrap();
        // The change times of an empty file do not count.
        file.set_len(1).unwrap();
        let file = LowerFile::new(file.into(), NoWait::Unsupported);
        let handle = FileHandle(3);
        let after = |left: fn(&Statx) -> Option<Duration>| {
            let filter = filter();
            let stat = stat_open(&file).unwrap();
            filter.go_on_writing(handle, &stat);
            filter.was_left(handle, left(&stat));
            let waiting = Waiting::new(0);
            filter.write((&waiting, None), handle, &file, || (), || Ok(()))
        };
        assert_eq!(after(|stat| Some(view::time_of_change(stat))), Ok(()));
        assert_eq!(after(|_| None), Err(Errno::EACCES));
        // The file was changed after the ledger's record.
        let earlier = |stat: &Statx| Some(view::time_of_change(stat) - Duration::from_nanos(1));
        assert_eq!(after(earlier), Err(Errno::EACCES));
    }
}

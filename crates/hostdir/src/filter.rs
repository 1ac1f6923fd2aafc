//! Files whose readers do not see everything that is in them.
//!
//! What has to be taken out is found by looking through the file ([`redact`](crate::redact)); that is a view
//! ([`view`]), which holds as long as the file stays as it is. No byte is shown that was not looked at in
//! that version of the file, and nothing is shown while somebody may be changing it.
//!
//! **Writing.** One byte in the right place makes a parser take a position for part of the picture. So
//! nobody changes what is there: only who finds the file empty, or empties it, may write, until
//! somebody else does so ([`Filter::begin_writing`]), by this server, by another, or beneath: before
//! each write the file has to be as the one before it has left it. Each write holds a write lease, so that
//! nobody else has the file open, and whoever opens it beneath waits for the end of the write. What such a
//! writer can make visible is what it has written itself. As long as it has the file open, nobody else
//! reads it.
//!
//! Everybody who has the file open shares one [`Filter`].

mod view;

use crate::files::{OpenFile, stat_open};
use crate::host::Host;
use crate::inode::Inode;
use crate::ledger::Notes;
use crate::policy::Redaction;
use parking_lot::Mutex;
use rustix::fs::Statx;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use thrufs::{Context, Errno, LowerFile, Result};
use thrufs_abi::FileHandle;
use thrufs_sys::lease;
pub(crate) use view::Waiting;
use view::{Version, View};

/// Most attempts to write to a file that somebody else has open, and how long to wait before the second;
/// before the later ones longer, two seconds in all.
const ATTEMPTS_MAX: u32 = 48;
const PAUSE: Duration = Duration::from_millis(2);

/// How the readers of one file see it.
#[derive(Debug)]
pub(crate) struct Filter {
    redaction: Redaction,
    /// For which version of the file the view holds.
    view: Mutex<Option<(Version, View)>>,
    writer: Mutex<Option<Writer>>,
    /// Where it is noted how the file was left, for a successor.
    notes: Option<Arc<Notes>>,
}

/// Who alone may write to the file.
#[derive(Clone, Copy, Debug)]
struct Writer {
    handle: FileHandle,
    /// As the file was left through that handle. Otherwise, somebody else has changed it.
    left: Version,
}

impl Writer {
    /// Whether nobody else has changed what the file `found` so is. An empty one may have another name, or
    /// one less; who has emptied it has changed what its content was last changed at.
    fn has_left(&self, found: Version) -> bool {
        self.left == found || self.left.is_empty_as(found)
    }
}

impl Filter {
    pub(crate) fn new(redaction: Redaction, notes: Option<Arc<Notes>>) -> Filter {
        Filter {
            redaction,
            view: Mutex::new(None),
            writer: Mutex::new(None),
            notes,
        }
    }

    /// What it takes out.
    pub(crate) fn redaction(&self) -> Redaction {
        self.redaction
    }

    /// Whether its readers see nothing that this takes out or withholds.
    pub(crate) fn is_as_strict_as(&self, redaction: Redaction) -> bool {
        self.redaction.kinds.contains(redaction.kinds)
    }

    /// Lets this handle write, and nobody else any more, if there is nothing in the file. Who it takes
    /// that from, if anybody, is told before.
    ///
    /// # Errors
    ///
    /// The rule's when there is something in it.
    pub(crate) fn begin_writing(
        &self,
        handle: FileHandle,
        file: &LowerFile,
        tell: impl FnOnce(Option<FileHandle>),
    ) -> Result<()> {
        let mut writer = self.writer.lock();
        let left = Version::of(&stat_open(file)?);
        if !left.is_empty() {
            return Err(self.redaction.errno);
        }
        tell(writer.map(|writer| writer.handle));
        *writer = Some(Writer { handle, left });
        self.note_left(handle, Some(left));
        Ok(())
    }

    /// Whether this handle may write.
    pub(crate) fn is_written_by(&self, handle: FileHandle) -> bool {
        self.writer.lock().is_some_and(|w| w.handle == handle)
    }

    /// Lets this handle go on writing to what has these attributes, as it might in another process.
    pub(crate) fn go_on_writing(&self, handle: FileHandle, stat: &Statx) {
        let left = Version::of(stat);
        *self.writer.lock() = Some(Writer { handle, left });
    }

    /// The process before has left the file so. Where it died in the midst of a change, nobody knows
    /// whose the last one is, and nobody may go on.
    pub(crate) fn was_left(&self, handle: FileHandle, changed: Option<Duration>) {
        let mut slot = self.writer.lock();
        if let Some(writer) = slot.as_mut().filter(|writer| writer.handle == handle) {
            match changed {
                Some(changed) => writer.left.set_changed(changed),
                None => *slot = None,
            }
        }
    }

    /// While a change is under way, nothing is known.
    fn note_left(&self, handle: FileHandle, left: Option<Version>) {
        if let Some(notes) = &self.notes {
            notes.note_left(handle, left.map(Version::changed));
        }
    }

    /// Carries out a change by `writer`, or of its file as it has left it.
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

    /// Changes the file through a handle. Nobody begins to write meanwhile, and nobody else has the file
    /// open, where the file system has leases. Others that have it open are asked by `close` not to.
    ///
    /// # Errors
    ///
    /// The rule's when this handle may not write, `EBUSY` when somebody else has the file open for longer
    /// than can be waited for or too many wait, those of `change`.
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

    /// Who may write, if anybody.
    pub(crate) fn writer(&self) -> Option<FileHandle> {
        self.writer.lock().map(|writer| writer.handle)
    }

    /// Takes the right to write from whom has it, where somebody else has changed what the file `found` so
    /// is. Tells whose it was.
    fn end_writing(&self, found: &Statx) -> Option<FileHandle> {
        let mut slot = self.writer.lock();
        let ended = slot.filter(|writer| !writer.has_left(Version::of(found)))?;
        *slot = None;
        self.note_left(ended.handle, None);
        Some(ended.handle)
    }

    /// Changes attributes of the file, and with them its times. Who may write still may.
    fn change_attributes<T>(
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

impl Host {
    /// Changes attributes of a file that somebody may be writing to.
    pub(crate) fn change_attributes<T>(
        &self,
        inode: &Arc<Inode>,
        file: BorrowedFd<'_>,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let Some(filter) = inode.filter() else {
            return change();
        };
        self.is_being_written(inode, &filter)?;
        filter.change_attributes(file, change)
    }

    /// Whether this open file is the one that may write, where others see it redacted.
    fn is_writer(&self, file: &OpenFile, filter: &Filter) -> bool {
        let writer = filter.writer().and_then(|handle| self.files.get(handle.0));
        writer.is_some_and(|writer| std::ptr::eq(&*writer, file))
    }

    /// Whether the lower file of an open file may be open for writing.
    ///
    /// # Errors
    ///
    /// The rule's, for an open file that does not have, or no longer, the right to write.
    pub(crate) fn may_write(&self, file: &OpenFile) -> Result<()> {
        match file.guard().filter() {
            Some(filter) if !self.is_writer(file, filter) => Err(filter.redaction.errno),
            _ => Ok(()),
        }
    }

    /// Changes what is in a file through an open file, where whoever has that may.
    ///
    /// # Errors
    ///
    /// See [`Filter::write`]; `DEFER`, before anything was done.
    pub(crate) fn change_file<T>(
        &self,
        context: &Context<'_>,
        (handle, file): (FileHandle, &OpenFile),
        lower: &LowerFile,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let Some(filter) = file.guard().filter() else {
            return change();
        };
        // Who opens it beneath may have to wait, and so may this.
        context.require_blocking()?;
        let close = || self.close_lower_files(file.inode(), handle);
        let waiting = (&self.waiting, context.uid());
        let changed = filter.write(waiting, handle, lower, close, change);
        if changed.is_err() {
            self.is_being_written(file.inode(), filter)?;
        }
        changed
    }

    /// Closes what this server has open of a file that others see redacted, but for whoever writes. It is
    /// opened again when it is asked for.
    pub(crate) fn close_lower_files(&self, inode: &Inode, writer: FileHandle) {
        // All open files are looked through.
        if !inode.uses().as_ref().is_some_and(|uses| uses.is_shared()) {
            return;
        }
        for (handle, file) in self.files.iter() {
            if handle != writer.0 && file.node() == inode.node() {
                self.close_lower(&file);
            }
        }
    }

    /// Whether the one who may write to a file that others see redacted has it open. Where somebody else has
    /// changed it since, that right ends.
    fn is_being_written(&self, inode: &Arc<Inode>, filter: &Filter) -> Result<bool> {
        let Some(file) = filter.writer().and_then(|handle| self.files.get(handle.0)) else {
            return Ok(false);
        };
        let stat = self.descriptor(inode).and_then(stat_open)?;
        if let Some(ended) = filter.end_writing(&stat) {
            self.note_writing(ended, filter.redaction, false);
            self.close_lower(&file);
        }
        Ok(file.has_lower())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::RedactionKinds;
    use thrufs::NoWait;

    #[test]
    fn who_died_in_the_midst_of_a_change_leaves_the_right_to_nobody() {
        let file = tempfile::tempfile().unwrap();
        // Of an empty one its names' times do not count.
        file.set_len(1).unwrap();
        let file = LowerFile::new(file.into(), NoWait::Unsupported);
        let redaction = Redaction {
            kinds: RedactionKinds::from_bits(1).unwrap(),
            errno: Errno::EACCES,
            content: Default::default(),
        };
        let handle = FileHandle(3);
        let after = |left: fn(&Statx) -> Option<Duration>| {
            let filter = Filter::new(redaction, None);
            let stat = stat_open(&file).unwrap();
            filter.go_on_writing(handle, &stat);
            filter.was_left(handle, left(&stat));
            let waiting = Waiting::new(0);
            filter.write((&waiting, None), handle, &file, || (), || Ok(()))
        };
        assert_eq!(after(|stat| Some(view::time_of_change(stat))), Ok(()));
        assert_eq!(after(|_| None), Err(Errno::EACCES));
        // Somebody has changed it since it was noted.
        let earlier = |stat: &Statx| Some(view::time_of_change(stat) - Duration::from_nanos(1));
        assert_eq!(after(earlier), Err(Errno::EACCES));
    }
}

//! Files whose readers do not see everything that is in them.
//!
//! What has to be taken out is found by looking through the file ([`redact`]), and
//! holds as long as the file stays as it is. So each read looks at the file's times and size before
//! and after, and is done again when they changed; no byte is shown that was not looked at in that
//! version of the file. Times go in steps, of the kernel's clock or of the file system, so a version
//! counts as one only when it is older than such a step.
//!
//! **Writing.** One byte in the right place makes a parser take a position for part of the picture. So
//! nobody changes what is there: only who finds the file empty, or empties it, may write, until
//! somebody else does so ([`Filter::begin_writing`]), by this server, by another, or beneath: before
//! each write the file has to be as the one before it has left it. What such a writer can make visible
//! is what it has written itself.
//!
//! Everybody who has the file open shares one [`Filter`].

use crate::files::{OpenFile, stat_open};
use crate::host::Host;
use crate::inode::Inode;
use crate::ledger::Notes;
use crate::policy::{ContentType, HEAD_BYTES, Redaction};
use crate::redact::{self, Outcome, ReadAt, RedactionPlan};
use parking_lot::Mutex;
use rustix::fs::Statx;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thrufs::{Context, Errno, LowerFile, ReadAnswer, ReadArgs, ReadReply, Result};
use thrufs_abi::FileHandle;

/// Most attempts to read a file that keeps changing.
const ATTEMPTS_MAX: u32 = 48;

/// How long to wait before the second attempt; before the later ones longer, more than
/// [`FILE_SYSTEM_STEP_MAX`] in all.
const PAUSE: Duration = Duration::from_millis(2);

/// Longer than a step of the clock that file systems take times from (10 ms at 100 Hz).
const CLOCK_STEP_MAX: Duration = Duration::from_millis(20);

/// The same where a file system keeps whole seconds: an ext4 with small inodes one, FAT two.
const FILE_SYSTEM_STEP_MAX: Duration = Duration::from_millis(2_100);

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

/// What changes with each change of a file. Nobody can set the time of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    size: u64,
    changed: Duration,
}

impl Version {
    fn of(stat: &Statx) -> Version {
        Version {
            size: stat.stx_size,
            changed: time_of_change(stat),
        }
    }
}

/// Since 1970.
pub(crate) fn time_of_change(stat: &Statx) -> Duration {
    Duration::new(stat.stx_ctime.tv_sec.max(0) as u64, stat.stx_ctime.tv_nsec)
}

/// One version of a file, as its readers see it.
#[derive(Clone, Debug)]
enum View {
    /// As it is.
    Whole,
    Redacted(Arc<RedactionPlan>),
    /// It may not be shown, since it was not understood.
    Withheld(Errno),
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
        if left.size != 0 {
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
                Some(changed) => writer.left.changed = changed,
                None => *slot = None,
            }
        }
    }

    /// While a change is under way, nothing is known.
    fn note_left(&self, handle: FileHandle, left: Option<Version>) {
        if let Some(notes) = &self.notes {
            notes.note_left(handle, left.map(|left| left.changed));
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

    /// Changes the file through a handle. Nobody begins to write meanwhile.
    ///
    /// # Errors
    ///
    /// The rule's when this handle may not write, those of `change`.
    pub(crate) fn write<T>(
        &self,
        handle: FileHandle,
        file: &LowerFile,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut slot = self.writer.lock();
        let found = Version::of(&stat_open(file)?);
        // In an empty file there is nothing that could be shown, whoever has renamed or removed it.
        let is_left = |writer: &Writer| writer.left == found || found.size == 0;
        let writer = slot.as_mut().filter(|w| w.handle == handle && is_left(w));
        let writer = writer.ok_or(self.redaction.errno)?;
        self.carry_out(writer, file.as_fd(), change)
    }

    /// Changes attributes of the file, and with them its times. Who may write still may.
    fn change_attributes<T>(
        &self,
        file: BorrowedFd<'_>,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut slot = self.writer.lock();
        let found = Version::of(&stat_open(file)?);
        match slot.as_mut().filter(|writer| writer.left == found) {
            Some(writer) => self.carry_out(writer, file, change),
            None => change(),
        }
    }

    /// The view of the version with these attributes, which `file` has at the moment.
    fn view(&self, file: &LowerFile, stat: &Statx) -> Result<View> {
        let (version, length) = (Version::of(stat), stat.stx_size);
        let mut known = self.view.lock();
        if let Some((of, view)) = &*known
            && *of == version
        {
            return Ok(view.clone());
        }
        let view = match redact::plan(&Reader(file), length) {
            Ok(Outcome::NotApplicable) if length == 0 => View::Whole,
            Ok(_) if !self.is_as_expected(file)? => self.not_understood("it is of another type"),
            Ok(Outcome::NotApplicable) => self.not_understood("it is of no such format"),
            Ok(Outcome::Plan(plan)) if plan.is_empty() => View::Whole,
            Ok(Outcome::Plan(plan)) => View::Redacted(Arc::new(plan)),
            Err(redact::RedactError::Unparsable(why)) => self.not_understood(why),
            Err(redact::RedactError::Read(error)) => {
                return Err(Errno::from(error));
            }
        };
        if !is_young(stat) {
            *known = Some((version, view.clone()));
        }
        Ok(view)
    }

    /// Whether it is what the rule says that it is to be.
    fn is_as_expected(&self, file: &LowerFile) -> Result<bool> {
        if self.redaction.content.is_all() {
            return Ok(true);
        }
        let mut head = [0; HEAD_BYTES];
        let length = file.read_at(&mut head, 0, true)?;
        let content = ContentType::of(&head[..length]);
        Ok(self.redaction.expects(content))
    }

    fn not_understood(&self, why: &str) -> View {
        tracing::debug!("a file is withheld, since it is not understood: {why}");
        View::Withheld(self.redaction.errno)
    }

    /// Reads as readers may.
    ///
    /// # Errors
    ///
    /// What the rule says of files that are not understood, `EBUSY` when the file keeps changing.
    fn read(&self, file: &LowerFile, buffer: &mut [u8], offset: u64) -> Result<usize> {
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 {
                // Whoever changes it may come to an end.
                std::thread::sleep(PAUSE * attempt);
            }
            let before = stat_open(file)?;
            if is_young(&before) {
                continue;
            }
            let version = Version::of(&before);
            let view = self.view(file, &before)?;
            let length = match &view {
                View::Withheld(errno) => return Err(*errno),
                View::Whole | View::Redacted(_) => file.read_at(buffer, offset, true)?,
            };
            if let View::Redacted(plan) = &view {
                plan.apply(offset, &mut buffer[..length]);
            }
            if Version::of(&stat_open(file)?) == version {
                return Ok(length);
            }
        }
        buffer.fill(0);
        Err(Errno::EBUSY)
    }
}

/// Whether the file could change now and have the same times. Not one that changed in what the clock
/// takes for the future: a change now would have another time.
fn is_young(stat: &Statx) -> bool {
    let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) else {
        return true;
    };
    let changed = time_of_change(stat);
    let step = match changed.subsec_nanos() {
        0 => FILE_SYSTEM_STEP_MAX,
        _ => CLOCK_STEP_MAX,
    };
    now.abs_diff(changed) < step
}

/// Reads that find out what there is to redact.
struct Reader<'a>(&'a LowerFile);

impl ReadAt for Reader<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0
            .read_at(buffer, offset, true)
            .map_err(io::Error::from)
    }
}

impl Host {
    /// Changes attributes of a file that somebody may be writing to.
    pub(crate) fn change_attributes<T>(
        &self,
        inode: &Inode,
        file: BorrowedFd<'_>,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        match inode.filter() {
            Some(filter) => filter.change_attributes(file, change),
            None => change(),
        }
    }

    /// Makes sure that a file can be shown to a reader at all.
    ///
    /// # Errors
    ///
    /// What the rule says of files that are not understood.
    pub(crate) fn check_filtered(&self, file: &LowerFile, filter: &Filter) -> Result<()> {
        let stat = stat_open(file)?;
        match filter.view(file, &stat)? {
            View::Withheld(errno) => Err(errno),
            View::Whole | View::Redacted(_) => Ok(()),
        }
    }

    pub(crate) fn read_filtered(
        &self,
        context: &Context<'_>,
        file: &OpenFile,
        filter: &Filter,
        args: &ReadArgs,
        reply: ReadReply<'_>,
    ) -> Result<ReadAnswer> {
        // Looking through a file takes its time, wherever it is.
        context.require_blocking()?;
        let lower = self.lower(file, false)?;
        reply.fill(|buffer| filter.read(&lower, buffer, args.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::RedactionKinds;
    use thrufs::NoWait;

    #[test]
    fn who_died_in_the_midst_of_a_change_leaves_the_right_to_nobody() {
        let file = LowerFile::new(tempfile::tempfile().unwrap().into(), NoWait::Unsupported);
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
            filter.write(handle, &file, || Ok(()))
        };
        assert_eq!(after(|stat| Some(time_of_change(stat))), Ok(()));
        assert_eq!(after(|_| None), Err(Errno::EACCES));
    }

    #[test]
    fn whole_seconds_are_those_of_a_file_system_that_keeps_no_others() {
        let file = tempfile::tempfile().unwrap();
        let is_young_with = |age: u64, nanoseconds: Option<u32>| {
            let mut stat = stat_open(&file).unwrap();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let changed = now - Duration::from_millis(age);
            stat.stx_ctime.tv_sec = changed.as_secs() as i64;
            stat.stx_ctime.tv_nsec = nanoseconds.unwrap_or(changed.subsec_nanos());
            is_young(&stat)
        };
        assert!(is_young_with(0, None) && is_young_with(1000, Some(0)));
        assert!(!is_young_with(1000, Some(1)) && !is_young_with(3200, Some(0)));
    }
}

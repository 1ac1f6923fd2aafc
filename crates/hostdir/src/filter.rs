//! Files whose readers do not see everything that is in them.
//!
//! What has to be taken out is found by looking through the file ([`redact`]), and
//! holds as long as the file stays as it is. So each read looks at the file's times and size before
//! and after, and is done again when they changed; no byte is shown that was not looked at in that
//! version of the file. Times go in steps of the kernel's clock, so a version counts as one only when
//! it is older than such a step.
//!
//! **Writing.** One byte in the right place makes a parser take a position for part of the picture. So
//! nobody changes what is there: only who finds the file empty, or empties it, may write, until
//! somebody else does so ([`Filter::begin_writing`]). What such a writer can make visible is what it
//! has written itself.
//!
//! Everybody who has the file open shares one [`Filter`].

use crate::attributes::content_version;
use crate::files::{OpenFile, stat_open};
use crate::host::Host;
use crate::policy::{ContentType, HEAD_BYTES, Redaction};
use crate::redact::{self, Outcome, ReadAt, RedactionPlan};
use parking_lot::Mutex;
use rustix::fs::Statx;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thrufs::{Context, Errno, LowerFile, ReadAnswer, ReadArgs, ReadReply, Result};
use thrufs_abi::FileHandle;

/// Most attempts to read a file that keeps changing.
const ATTEMPTS_MAX: u32 = 32;

/// How long to wait before the second attempt; before the later ones longer, a second in all.
const PAUSE: Duration = Duration::from_millis(2);

/// Longer than a step of the clock that file systems take times from (10 ms at 100 Hz).
const CLOCK_STEP_MAX: Duration = Duration::from_millis(20);

/// How the readers of one file see it.
#[derive(Debug)]
pub(crate) struct Filter {
    redaction: Redaction,
    /// For which version of the file the view holds.
    view: Mutex<Option<(u64, View)>>,
    writer: Mutex<Option<Writer>>,
}

/// Who alone may write to the file.
#[derive(Clone, Copy, Debug)]
struct Writer {
    handle: FileHandle,
    /// The size of the file when it was last changed through that handle. With another one, somebody
    /// has written beneath.
    size: u64,
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
    pub(crate) fn new(redaction: Redaction) -> Filter {
        Filter {
            redaction,
            view: Mutex::new(None),
            writer: Mutex::new(None),
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
        if stat_open(file)?.stx_size != 0 {
            return Err(self.redaction.errno);
        }
        tell(writer.map(|writer| writer.handle));
        *writer = Some(Writer { handle, size: 0 });
        Ok(())
    }

    /// Whether this handle may write.
    pub(crate) fn is_written_by(&self, handle: FileHandle) -> bool {
        self.writer.lock().is_some_and(|w| w.handle == handle)
    }

    /// Lets this handle go on writing, as it might in another process.
    pub(crate) fn go_on_writing(&self, handle: FileHandle, size: u64) {
        *self.writer.lock() = Some(Writer { handle, size });
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
        let size = stat_open(file)?.stx_size;
        let Some(writer) = slot
            .as_mut()
            .filter(|w| w.handle == handle && w.size == size)
        else {
            return Err(self.redaction.errno);
        };
        let changed = change();
        writer.size = stat_open(file)?.stx_size;
        changed
    }

    /// The view of the version with these attributes, which `file` has at the moment.
    fn view(&self, file: &LowerFile, stat: &Statx) -> Result<View> {
        let (version, length) = (content_version(stat), stat.stx_size);
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
            let version = content_version(&before);
            let view = self.view(file, &before)?;
            let length = match &view {
                View::Withheld(errno) => return Err(*errno),
                View::Whole | View::Redacted(_) => file.read_at(buffer, offset, true)?,
            };
            if let View::Redacted(plan) = &view {
                plan.apply(offset, &mut buffer[..length]);
            }
            if content_version(&stat_open(file)?) == version {
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
    let changed = Duration::new(stat.stx_ctime.tv_sec.max(0) as u64, stat.stx_ctime.tv_nsec);
    now.abs_diff(changed) < CLOCK_STEP_MAX
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

//! What readers see of one version of a redacted file.

use rustix::fs::Statx;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thrufs::{Context, Errno, LowerFile, ReadAnswer, ReadArgs, ReadReply, Result};
use thrufs_policy::{ContentType, HEAD_BYTES};
use thrufs_redact::{Outcome, RedactError, RedactionPlan};
use thrufs_sys::lease;

/// Most attempts to read a file that keeps changing.
const ATTEMPTS_MAX: u32 = 48;

/// Most attempts to read a file that a process has open for writing: an eighth of a second.
const ATTEMPTS_MAX_WRITTEN: u32 = 12;

/// The wait before the second attempt; the later ones wait longer, more than [`FILE_SYSTEM_STEP_MAX`] in
/// all.
const PAUSE: Duration = Duration::from_millis(2);

/// Most waiting readers and writers, each with a thread; one more fails at once.
const WAITING_MAX: usize = 16;

const WAITING_MAX_OF_USER: usize = WAITING_MAX / 2;

/// Longer than a tick of the clock of file times (10 ms at 100 Hz).
const CLOCK_STEP_MAX: Duration = Duration::from_millis(20);

/// The same for file systems with whole seconds: one on ext4 with small inodes, two on FAT.
const FILE_SYSTEM_STEP_MAX: Duration = Duration::from_millis(2_100);

/// Changes with each change of a file: the change time cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    size: u64,
    changed: Duration,
    /// The modification time, which a process can set.
    modified: (i64, u32),
}

impl Version {
    pub(super) fn of(stat: &Statx) -> Version {
        Version {
            size: stat.stx_size,
            changed: time_of_change(stat),
            modified: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        }
    }

    pub(super) fn is_empty(self) -> bool {
        self.size == 0
    }

    /// Whether the file was and is empty, and was not emptied in between.
    pub(super) fn is_empty_as(self, other: Version) -> bool {
        self.is_empty() && other.is_empty() && self.modified == other.modified
    }

    pub(super) fn changed(self) -> Duration {
        self.changed
    }

    pub(super) fn set_changed(&mut self, changed: Duration) {
        self.changed = changed;
    }
}

/// Since 1970.
pub(crate) fn time_of_change(stat: &Statx) -> Duration {
    Duration::new(stat.stx_ctime.tv_sec.max(0) as u64, stat.stx_ctime.tv_nsec)
}

/// Whether a change now could leave the same times. Not with a change time in the future: a change now
/// would have another one.
pub(super) fn is_young(stat: &Statx) -> bool {
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

/// What readers see of one version of a file.
#[derive(Clone, Debug)]
pub(crate) enum View {
    /// All of it.
    Whole,
    Redacted(Arc<RedactionPlan>),
    /// Nothing: the file was not understood.
    Withheld(Errno),
}

impl View {
    pub(crate) fn read(&self, file: &LowerFile, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if let View::Withheld(errno) = self {
            return Err(*errno);
        }
        let length = file.read_at(buffer, offset, true)?;
        if let View::Redacted(plan) = self {
            plan.apply(offset, &mut buffer[..length]);
        }
        Ok(length)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotYet {
    /// Two versions may have the same times.
    Young,
    /// A process has it open for writing.
    Written,
}

type Attempt<T> = std::result::Result<T, NotYet>;

impl Filter {
    /// Makes the view of the file, which has this length.
    fn make_view(&self, file: &LowerFile, length: u64) -> Result<View> {
        let reader = |buffer: &mut [u8], offset| {
            let read = file.read_at(buffer, offset, true);
            read.map_err(io::Error::from)
        };
        Ok(match thrufs_redact::plan(&reader, length) {
            Ok(Outcome::NotApplicable) if length == 0 => View::Whole,
            Ok(_) if !self.is_as_expected(file)? => self.not_understood("it is of another type"),
            Ok(Outcome::NotApplicable) => self.not_understood("it is of no such format"),
            Ok(Outcome::Plan(plan)) if plan.is_empty() => View::Whole,
            Ok(Outcome::Plan(plan)) => View::Redacted(Arc::new(plan)),
            Err(RedactError::Unparsable(why)) => self.not_understood(why),
            Err(RedactError::Read(error)) => return Err(Errno::from(error)),
        })
    }

    /// Whether the content is of a type that the rule expects.
    fn is_as_expected(&self, file: &LowerFile) -> Result<bool> {
        if self.redaction.content.is_all() {
            return Ok(true);
        }
        let mut head = [0; HEAD_BYTES];
        let length = file.read_at(&mut head, 0, true)?;
        let content = ContentType::of(&head[..length]);
        Ok(self.redaction.content.contains(content))
    }

    fn not_understood(&self, why: &str) -> View {
        tracing::debug!("a file is refused, because it cannot be parsed: {why}");
        View::Withheld(self.redaction.errno)
    }

    /// Runs an attempt with the view of the file's version, unless it `is_written`.
    fn look<T>(
        &self,
        file: &LowerFile,
        is_settled: bool,
        is_written: impl Fn() -> bool,
        look: impl FnOnce(&View) -> Result<T>,
    ) -> Result<Attempt<T>> {
        if is_written() {
            return Ok(Err(NotYet::Written));
        }
        let before = stat_open(file)?;
        let is_young = is_young(&before);
        if is_young && !is_settled {
            return Ok(Err(NotYet::Young));
        }
        let version = Version::of(&before);
        let known = self.view.lock().clone();
        let known = known.filter(|(of, _)| *of == version).map(|(_, view)| view);
        let is_known = known.is_some();
        let view = match known {
            Some(view) => view,
            None => self.make_view(file, before.stx_size)?,
        };
        let answer = look(&view);
        if is_written() {
            return Ok(Err(NotYet::Written));
        }
        if Version::of(&stat_open(file)?) != version {
            return Ok(Err(NotYet::Young));
        }
        if !is_known && !is_young {
            *self.view.lock() = Some((version, view));
        }
        answer.map(Ok)
    }

    fn look_as_reader<T>(
        &self,
        file: &LowerFile,
        look: impl FnOnce(&View) -> Result<T>,
    ) -> Result<Attempt<T>> {
        // An error: there are no leases.
        let is_written = || lease::has_writers(file).unwrap_or(false);
        self.look(file, false, is_written, look)
    }

    /// For the writer, which has the file open as `file`.
    fn look_as_writer<T>(
        &self,
        file: &LowerFile,
        look: impl FnOnce(&View) -> Result<T>,
    ) -> Result<Attempt<T>> {
        let _no_writes = self.writer.lock();
        match lease::exclusive(file.as_fd()) {
            Ok(None) => Ok(Err(NotYet::Written)),
            exclusive => self.look(file, exclusive.is_ok(), || false, look),
        }
    }
}

/// Counts the waiting readers and writers.
pub(crate) struct Waiting {
    all: AtomicUsize,
    of_users: Arc<UserQuotas>,
}

impl Waiting {
    pub(crate) fn new(server_uid: u32) -> Waiting {
        Waiting {
            all: AtomicUsize::new(0),
            of_users: UserQuotas::new(WAITING_MAX_OF_USER, WAITING_MAX / 4 * 3, server_uid),
        }
    }

    /// Waits for a while. Fails with `EBUSY`, at once, when too many requests wait, of this user or in all.
    pub(super) fn pause(&self, uid: Option<u32>, pause: Duration) -> Result<()> {
        let _charge = self.of_users.charge(uid).map_err(|_| Errno::EBUSY)?;
        let waiting = self.all.fetch_add(1, Ordering::Relaxed);
        if waiting < WAITING_MAX {
            std::thread::sleep(pause);
        }
        self.all.fetch_sub(1, Ordering::Relaxed);
        if waiting < WAITING_MAX {
            Ok(())
        } else {
            Err(Errno::EBUSY)
        }
    }

    /// Repeats `attempt` until it succeeds. Fails with `EBUSY` when that takes too long, or too many requests
    /// wait; those of `attempt`.
    fn until<T>(
        &self,
        uid: Option<u32>,
        mut attempt: impl FnMut() -> Result<Attempt<T>>,
    ) -> Result<T> {
        let mut attempts = 0;
        loop {
            let not_yet = match attempt()? {
                Ok(done) => return Ok(done),
                Err(not_yet) => not_yet,
            };
            attempts += 1;
            let most = match not_yet {
                NotYet::Young => ATTEMPTS_MAX,
                NotYet::Written => ATTEMPTS_MAX_WRITTEN,
            };
            if attempts >= most {
                return Err(Errno::EBUSY);
            }
            self.pause(uid, PAUSE * attempts)?;
        }
    }
}

impl Host {
    /// Makes sure that no writer has a file open that is about to be opened for reading. Fails with `EBUSY`
    /// when one has it open for too long.
    pub(crate) fn require_no_writer(
        &self,
        uid: Option<u32>,
        inode: &Arc<Inode>,
        filter: &Filter,
    ) -> Result<()> {
        self.waiting.until(uid, || {
            Ok(match self.is_being_written(inode, filter)? {
                true => Err(NotYet::Written),
                false => Ok(()),
            })
        })
    }

    /// Makes sure that a reader can be shown the file at all. Fails with the rule's error for files that are
    /// not understood, `EBUSY` when it keeps changing.
    pub(crate) fn check_filtered(
        &self,
        uid: Option<u32>,
        file: &LowerFile,
        filter: &Filter,
    ) -> Result<()> {
        self.waiting.until(uid, || {
            filter.look_as_reader(file, |view| match view {
                View::Withheld(errno) => Err(*errno),
                View::Whole | View::Redacted(_) => Ok(()),
            })
        })
    }

    /// Reads with redaction. Fails with the rule's error for files that are not understood, `EBUSY` when the
    /// file keeps changing.
    pub(crate) fn read_filtered(
        &self,
        context: &Context<'_>,
        file: &OpenFile,
        filter: &Filter,
        args: &ReadArgs,
        reply: ReadReply<'_>,
    ) -> Result<ReadAnswer> {
        // The scan takes long on any file system.
        context.require_blocking()?;
        reply.fill(|buffer| {
            let read = self.waiting.until(context.uid(), || {
                let is_writer = self.is_writer(file, filter);
                if !is_writer && self.is_being_written(file.inode(), filter)? {
                    return Ok(Err(NotYet::Written));
                }
                let lower = self.lower(file, false)?;
                let read = |view: &View| view.read(&lower, buffer, args.offset);
                if is_writer {
                    let seen = filter.look_as_writer(&lower, read)?;
                    if seen == Err(NotYet::Written) {
                        self.close_lower_files(file.inode(), args.handle);
                    }
                    Ok(seen)
                } else {
                    filter.look_as_reader(&lower, read)
                }
            });
            if read.is_err() {
                // Bytes of a version that is not shown.
                buffer.fill(0);
            }
            read
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::stat_open;

    #[test]
    fn whole_second_times_need_a_longer_wait() {
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

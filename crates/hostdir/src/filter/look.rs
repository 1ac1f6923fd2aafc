//! Reading redacted files.
//!
//! A view is valid for one version of a file. A version is identified by times and size, which works only for
//! a file that is not being changed (see `files::versions`). So a view is made, cached and
//! read through only while no process has the file open for writing, which a read lease tells before and
//! after, and once the version is older than a tick of the clock of file times. Until then a reader waits a
//! little, and then fails. The writer of the file reads what it has written, under a write lease.
//!
//! On a file system without leases no writer is detected: a write(2) on the host that lasts longer than a
//! tick after it has set the time, and a store through a shared mapping, are missed.

use super::Filter;
use super::view::{Version, View, is_young};
use super::waiting::{Attempt, NotYet};
use crate::stat::stat_open;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use thrufs::{Errno, LowerFile, Result};
use thrufs_policy::{ContentType, HEAD_BYTES};
use thrufs_redact::{Outcome, RedactError};
use thrufs_sys::lease;

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

    pub(crate) fn look_as_reader<T>(
        &self,
        file: &LowerFile,
        look: impl FnOnce(&View) -> Result<T>,
    ) -> Result<Attempt<T>> {
        // An error: there are no leases.
        let is_written = || lease::has_writers(file).unwrap_or(false);
        self.look(file, false, is_written, look)
    }

    /// For the writer, which has the file open as `file`.
    pub(crate) fn look_as_writer<T>(
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

#[cfg(test)]
mod tests {
    use super::super::tests::filter;
    use super::*;
    use std::time::Duration;
    use thrufs::NoWait;

    /// The next version may have the same times as a young one.
    #[test]
    fn only_views_of_settled_versions_are_kept() {
        let keeps_view_of = |file: &LowerFile| {
            let filter = filter();
            let looked = filter.look(file, true, || false, |_| Ok(()));
            assert_eq!(looked, Ok(Ok(())));
            filter.view.lock().is_some()
        };
        // This thread may be held up until the file is no longer young.
        let file = loop {
            let file = LowerFile::new(tempfile::tempfile().unwrap().into(), NoWait::Unsupported);
            let keeps = keeps_view_of(&file);
            if is_young(&stat_open(&file).unwrap()) {
                assert!(!keeps);
                break file;
            }
        };
        while is_young(&stat_open(&file).unwrap()) {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(keeps_view_of(&file));
    }
}

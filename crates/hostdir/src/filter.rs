//! Files whose readers do not see everything that is in them.
//!
//! What has to be taken out is found by looking through the file ([`redact`]), and
//! holds as long as the file stays as it is. So each read looks at the file's times and size before
//! and after, and is done again when they changed; no byte is shown that was not looked at in that
//! version of the file.
//!
//! Everybody who has the file open shares one [`Filter`].

use crate::attributes::content_version;
use crate::files::{OpenFile, stat_open};
use crate::host::Host;
use crate::policy::{OnError, Redaction};
use crate::redact::{self, Outcome, ReadAt, RedactionPlan};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thrufs::{Context, Errno, LowerFile, ReadAnswer, ReadArgs, ReadReply, Result};

/// Most attempts to read a file that keeps changing.
const ATTEMPTS_MAX: u32 = 32;

/// How long to wait before the second attempt; before the later ones longer, a second in all.
const PAUSE: Duration = Duration::from_millis(2);

/// How the readers of one file see it.
#[derive(Debug)]
pub(crate) struct Filter {
    redaction: Redaction,
    /// For which version of the file the view holds.
    view: Mutex<Option<(u64, View)>>,
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
        }
    }

    /// What it takes out.
    pub(crate) fn redaction(&self) -> Redaction {
        self.redaction
    }

    /// Whether its readers see nothing that this takes out or withholds.
    pub(crate) fn is_as_strict_as(&self, redaction: Redaction) -> bool {
        let withholds = |redaction: Redaction| matches!(redaction.on_error, OnError::Deny(_));
        self.redaction.kinds.contains(redaction.kinds)
            && (withholds(self.redaction) || !withholds(redaction))
    }

    /// The view of this version, which `file` is at the moment.
    fn view(&self, file: &LowerFile, version: u64, length: u64) -> Result<View> {
        let mut known = self.view.lock();
        if let Some((of, view)) = &*known
            && *of == version
        {
            return Ok(view.clone());
        }
        let view = match redact::plan(&Reader(file), length) {
            Ok(Outcome::NotApplicable) if length == 0 => View::Whole,
            Ok(Outcome::NotApplicable) => self.not_understood("it is of no such format"),
            Ok(Outcome::Plan(plan)) if plan.is_empty() => View::Whole,
            Ok(Outcome::Plan(plan)) => View::Redacted(Arc::new(plan)),
            Err(redact::RedactError::Unparsable(why)) => self.not_understood(why),
            Err(redact::RedactError::Read(error)) => {
                return Err(Errno::from(error));
            }
        };
        *known = Some((version, view.clone()));
        Ok(view)
    }

    fn not_understood(&self, why: &str) -> View {
        match self.redaction.on_error {
            OnError::Pass => View::Whole,
            OnError::Deny(errno) => {
                tracing::debug!("a file is withheld, since it is not understood: {why}");
                View::Withheld(errno)
            }
        }
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
            let version = content_version(&before);
            let view = self.view(file, version, before.stx_size)?;
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
        match filter.view(file, content_version(&stat), stat.stx_size)? {
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

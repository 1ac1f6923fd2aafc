//! What a check finds.

use crate::front_end::{QueueError, SubmitError};
use thrufs::Errno;

#[derive(Debug)]
pub(super) enum Finding {
    Fail(String),
    Skip(String),
}

pub(super) type Verdict = Result<(), Finding>;

impl From<Errno> for Finding {
    fn from(errno: Errno) -> Finding {
        Finding::Fail(format!("a request failed with {errno}"))
    }
}

impl From<QueueError> for Finding {
    fn from(error: QueueError) -> Finding {
        Finding::Fail(error.to_string())
    }
}

impl From<SubmitError> for Finding {
    fn from(error: SubmitError) -> Finding {
        Finding::Fail(error.to_string())
    }
}

pub(super) fn fail<T>(why: impl Into<String>) -> Result<T, Finding> {
    Err(Finding::Fail(why.into()))
}

pub(super) fn skip<T>(why: impl Into<String>) -> Result<T, Finding> {
    Err(Finding::Skip(why.into()))
}

/// Fails with a reason unless `so`.
pub(super) fn ensure(so: bool, why: impl FnOnce() -> String) -> Verdict {
    if so { Ok(()) } else { fail(why()) }
}

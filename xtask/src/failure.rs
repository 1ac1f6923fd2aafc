//! Why a chore stopped.

use std::borrow::Borrow;
use std::fmt::{self, Display};
use std::io;
use std::path::Path;

/// Why a chore stopped.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Failure(why.into())
    }

    /// Fails if this list of what failed is not empty.
    pub(crate) fn if_any(how: &str, list: &[impl Borrow<str>]) -> Result<(), Failure> {
        match list.is_empty() {
            true => Ok(()),
            false => Err(Failure(format!("{how}: {}", list.join(", ")))),
        }
    }

    /// Makes a failure of an error of the operating system, and names its subject.
    pub(crate) fn of(what: &Path) -> impl Fn(io::Error) -> Failure {
        move |error| Failure(format!("{}: {error}", what.display()))
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

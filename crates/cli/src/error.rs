//! What the errors of all commands have in common.
//!
//! Each command has a type of errors of its own. An error is printed once, by [`finish`]; its text includes its
//! cause, and what the user can do.

use crate::output::report_failure;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Termination};
use thrufs_hostdir::ConfigError;
use thrufs_policy::PolicyFileError;

/// Exit status of a wrong command line.
pub(crate) const USAGE: u8 = 2;

/// Exit status of other failures.
pub(crate) const FAILURE: u8 = 1;

/// The error of a command.
pub(crate) trait CommandError: Error {
    /// The exit status.
    fn status(&self) -> u8 {
        FAILURE
    }
}

/// Prints the error of a command, after the name of the program.
pub(crate) fn finish<T: Termination>(
    program: &str,
    outcome: Result<T, impl CommandError>,
) -> ExitCode {
    match outcome {
        Ok(done) => done.report(),
        Err(error) => {
            report_failure(format_args!("{program}: {error}"));
            error.status().into()
        }
    }
}

/// What keeps a command from its work before it has begun.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartupError {
    #[error(
        "bad value `{directives}` for option `log`: {problem}; use error, warn, info, debug or trace"
    )]
    Log { directives: String, problem: String },
    #[error("the source {0} does not exist")]
    SourceMissing(PathBuf),
    #[error("the source {0} is not a directory: thrufs serves directories, not single files")]
    SourceNotDirectory(PathBuf),
    #[error(transparent)]
    Policy(#[from] PolicyFileError),
    #[error(transparent)]
    Serving(#[from] ConfigError),
    #[error(
        "the policy {0} has rules that match on programs (caller-exe), but the host does not see the \
         programs of a guest: remove these rules"
    )]
    ProgramsOfGuests(PathBuf),
    #[error("cannot {what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
    #[error("cannot {what} {path}: {source}")]
    Path {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl CommandError for StartupError {
    fn status(&self) -> u8 {
        match self {
            StartupError::Log { .. } => USAGE,
            _ => FAILURE,
        }
    }
}

/// Adds the failed action to a system error.
pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> StartupError {
    move |error| StartupError::System {
        what,
        source: error.into(),
    }
}

/// As [`system`], for an action on a path.
pub(crate) fn system_at<E: Into<io::Error>>(
    what: &'static str,
    path: &Path,
) -> impl Fn(E) -> StartupError {
    move |error| StartupError::Path {
        what,
        path: path.into(),
        source: error.into(),
    }
}

//! The errors of `thrufs run`.

use super::rules::RuleError;
use crate::draft::DraftError;
use crate::error::{CommandError, StartupError};
use crate::options::OptionError;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Exit status of errors of thrufs, as of env(1): the others are the command's.
pub(crate) const FAILED: u8 = 125;

#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error(transparent)]
    Startup(#[from] StartupError),
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error(transparent)]
    Draft(#[from] DraftError),
    #[error(
        "rules that match on callers are not for drafts: what one program may read would be copied to the layer,          where all may read it"
    )]
    CallersInDraft,
    #[error(
        "the draft is of user {0}: give another name with --draft=NAME, or that user with --user"
    )]
    OtherUserOfDraft(u32),
    #[error("cannot run a command in /: name the directory of the project")]
    WholeSystem,
    #[error("the option `{0}` is for `thrufs mount`, not for `thrufs run`")]
    NotForRun(&'static str),
    #[error("{1}")]
    NotExecuted(i32, String),
    #[error(
        "standard {0} is a directory, which would lead the command beneath the tree: use `</dev/null` or \
         a file"
    )]
    DirectoryAsStandardFile(&'static str),
    #[error(
        "--only requires a home directory: HOME, as root that of the user in /etc/passwd, is none, or is /"
    )]
    NoHome,
    #[error("--also and --also-write cannot show /: name the directories")]
    ShownWhole,
    #[error("cannot show {path} in the sandbox: {source}")]
    NotShown { path: PathBuf, source: io::Error },
    #[error("{0} is in the tree, where the rules decide (see --allow)")]
    ShownInTree(PathBuf),
    #[error("bad value for --user: {0}")]
    NoUser(String),
    #[error(
        "the command cannot run as root: root in the sandbox could change the machine; without --user, a \
         tree of root's is shown to a user that sees itself as root"
    )]
    RunAsRoot,
    #[error("cannot build the sandbox: {0}")]
    Sandbox(String),
    #[error(
        "{0} was changed or replaced while the command ran: what thrufs had written there is in it again, \
         and what others wrote is not to be trusted"
    )]
    LogChanged(PathBuf),
    #[error(
        "{0} was moved while the command ran: what thrufs had written there is in {1}, and what is at the \
         first path is not to be trusted"
    )]
    LogMoved(PathBuf, PathBuf),
    #[error("{0} was changed or replaced while the command ran, and cannot be written again: {1}")]
    LogNotRestored(PathBuf, #[source] io::Error),
    #[error(
        "not all records of {0} were compared with what is there at the end, because the copy of them failed: {1}"
    )]
    LogNotCompared(PathBuf, #[source] io::Error),
    #[error("standard error does not take what there is to say of the command: {0}")]
    NotSaid(#[source] io::Error),
    #[error("the sandbox was killed")]
    SandboxDied,
    #[error("the worker died ({0})")]
    WorkerDied(String),
    #[error("only root may use the option `--user`; drop it, or mount as root")]
    UserOfOther,
    #[error("the sandbox did not answer within {} s; the mount was given up", .0.as_secs())]
    NoAnswer(Duration),
    /// As the worker reported it.
    #[error("{0}")]
    Worker(String),
}

impl CommandError for RunError {
    fn status(&self) -> u8 {
        match self {
            RunError::NotExecuted(status, _) => u8::try_from(*status).unwrap_or(FAILED),
            _ => FAILED,
        }
    }
}

/// What failed in a process of the sandbox, and how.
pub(super) type Failure = (String, io::Error);

pub(super) fn failed_to<E: Into<io::Error>>(step: impl Into<String>) -> impl FnOnce(E) -> Failure {
    let step = step.into();
    move |error| (step, error.into())
}

//! The errors of drafts.

use crate::error::{CommandError, StartupError};
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub(crate) enum DraftError {
    #[error(transparent)]
    Startup(#[from] StartupError),
    #[error("there is no draft (`thrufs run --draft` begins one)")]
    None,
    #[error("there is no draft {0} (`thrufs draft list` has the names)")]
    NotFound(String),
    #[error(
        "no draft is of a tree around the working directory; there are: {0}; say which by --draft=NAME"
    )]
    Elsewhere(String),
    #[error("there are several drafts: {0}; say which by --draft=NAME")]
    Several(String),
    #[error(
        "the draft {0} has {1}, which the rules of this run hide, deny or redact: apply or discard it first, or run \
         with the rules that it had"
    )]
    Withheld(String, PathBuf),
    #[error(
        "bad name of a draft: {0:?}; use letters, digits, `.`, `_` and `-`, the first no `.` or `-`"
    )]
    BadName(String),
    #[error("the draft {0} is in use by another thrufs: wait for its end")]
    InUse(String),
    #[error(
        "the draft {0} is not complete, because its start or its removal was interrupted: `thrufs draft \
         discard {0}`"
    )]
    Incomplete(String),
    #[error("the draft {0} is of another version of thrufs, or damaged: {1}")]
    Damaged(String, String),
    #[error("the draft {name} is of {tree}: give another name with --draft=NAME")]
    OtherTree { name: String, tree: PathBuf },
    #[error("the tree of the draft {name}, {tree}, was replaced by another directory since")]
    TreeReplaced { name: String, tree: PathBuf },
    #[error(
        "the drafts are in {0}, which is in the tree, or around it: say where else, with --draft-dir DIR"
    )]
    InTree(PathBuf),
    #[error(
        "the file system of {0} cannot have the layer of an overlay (a network, FUSE or overlay file \
         system, FAT): give a directory on another, with --draft-dir DIR"
    )]
    FileSystem(PathBuf),
    #[error(
        "the draft was moved while the command ran: look for a directory that was {0}, and do not trust what is \
         there now"
    )]
    Moved(PathBuf),
    #[error("{0} is not in {1}, the tree of the draft")]
    OutsideTree(PathBuf, PathBuf),
    #[error("the draft changes nothing at {0}")]
    Unchanged(PathBuf),
    #[error("HOME and XDG_STATE_HOME are unset: say where drafts are to be, with --draft-dir DIR")]
    NoPlace,
    #[error(
        "{0} belongs to another user, or others may write to it: give a directory of your own, with \
         --draft-dir DIR"
    )]
    NotOwn(PathBuf),
}

impl CommandError for DraftError {}

//! Why a server cannot be queried.

use crate::error::{CommandError, StartupError, system_at};
use crate::mounting::DeadMount;
use std::io;
use std::path::{Path, PathBuf};
use thrufs_hostdir::printable;

#[derive(Debug, thiserror::Error)]
pub(crate) enum QueryError {
    #[error(transparent)]
    Dead(#[from] DeadMount),
    #[error("cannot explain {0}: its mount is detached, or in another mount namespace")]
    Detached(PathBuf),
    #[error("{path} is not on a thrufs mount, but on {mountpoint}, of type {kind}{hint}")]
    NotOnThrufs {
        path: PathBuf,
        mountpoint: PathBuf,
        kind: String,
        hint: &'static str,
    },
    #[error(
        "the mount on {0} has no control socket at {1}: it was mounted with control=none, \
         or with control=PATH (use --control PATH), or its log gives the reason"
    )]
    NoSocket(PathBuf, PathBuf),
    #[error("there is no socket at {0}: name the socket of a share")]
    NotShare(PathBuf),
    #[error(
        "no share with a control socket listens at {0}: it was started with control=none, or with \
         control=PATH (use --control PATH), or it has ended"
    )]
    NoSocketOfShare(PathBuf),
    #[error("only user {1}, the owner of the mount on {0}, and root may query its server")]
    OtherUser(PathBuf, u32),
    #[error(
        "no server listens at {1}: the server of {0} has ended, or was started with \
         control=none and the socket is left from an earlier mount"
    )]
    NoServer(PathBuf, PathBuf),
    #[error("only log-level takes a level")]
    NoLevel,
    #[error("{path}: {why}")]
    Unhealthy { path: PathBuf, why: String },
    #[error("{path}: {why}")]
    Refused { path: PathBuf, why: String },
    #[error(transparent)]
    Startup(#[from] StartupError),
}

impl QueryError {
    /// Adds the path to the error of a query, which may cite the reply: on one line.
    pub(crate) fn query<E: Into<io::Error>>(path: &Path) -> impl Fn(E) -> QueryError {
        move |error| {
            let error = error.into();
            let error = match error.raw_os_error() {
                Some(_) => error,
                None => io::Error::new(error.kind(), printable(&error.to_string())),
            };
            system_at("query the server of", path)(error).into()
        }
    }
}

impl CommandError for QueryError {}

#[cfg(test)]
mod tests {
    use super::*;
    use thrufs_hostdir::FileKind;

    /// serde_json cites what it does not know.
    #[test]
    fn reply_of_a_hostile_server_controls_no_terminal() {
        let hostile = "\u{1b}]0;x\u{7}\n\u{9b}\u{202e}";
        let malformed = serde_json::from_value::<FileKind>(hostile.into()).unwrap_err();
        assert!(malformed.to_string().contains(hostile), "{malformed}");
        let said = QueryError::query(Path::new("/mnt"))(malformed).to_string();
        assert!(
            said.chars().all(|char| matches!(char, ' '..='~')),
            "{said:?}"
        );
    }
}

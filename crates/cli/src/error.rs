//! What can go wrong for the one who runs the command, with what can be done about it.
//!
//! Every error is printed once, in `main`; its text carries that of its cause.

use crate::command_line::CommandLineError;
use crate::control::place::PlaceError;
use crate::listening::SocketError;
use crate::mount_helper::HelperError;
use crate::options::OptionError;
use crate::virtiofsd::VirtiofsdError;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thrufs::MountError;
use thrufs_hostdir::policy::PolicyFileError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    CommandLine(#[from] CommandLineError),
    #[error(transparent)]
    Helper(#[from] HelperError),
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error(
        "bad value `{directives}` for option `log`: {problem}; say error, warn, info, debug or trace"
    )]
    Log { directives: String, problem: String },
    #[error("cannot append to the log file {path}: {source}")]
    LogFile { path: PathBuf, source: io::Error },
    #[error("the source {0} does not exist")]
    SourceMissing(PathBuf),
    #[error("the source {0} is not a directory: thrufs serves directories, not single files")]
    SourceNotDirectory(PathBuf),
    #[error("cannot open the source {path}: {source}")]
    Source { path: PathBuf, source: io::Error },
    #[error("the mount point {0} does not exist: make the directory first (mkdir)")]
    MountPointMissing(PathBuf),
    #[error("the mount point {0} is not a directory")]
    MountPointNotDirectory(PathBuf),
    #[error(
        "a dead FUSE mount lies on {0} (its server is gone): take it away first, with \
         `thrufs unmount {0}`"
    )]
    MountPointDead(PathBuf),
    #[error("cannot use the mount point {path}: {source}")]
    MountPoint { path: PathBuf, source: io::Error },
    #[error(
        "the mount point {mountpoint} is inside the source {source_path}, so that the mount would \
         contain itself: root can do that, others mount elsewhere or on the source itself"
    )]
    Recursive {
        source_path: PathBuf,
        mountpoint: PathBuf,
    },
    #[error("only root may use the option `{0}`; drop it, or mount as root")]
    RootOnly(&'static str),
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error("{0}")]
    Server(String),
    #[error("the server ended before it was ready; run it with -f --log=debug to see why")]
    ServerGone,
    #[error("{what}; {}", after_death(.dead.as_deref()))]
    ServerDied {
        what: String,
        /// The mount point, if the mount stays.
        dead: Option<PathBuf>,
    },
    #[error("requests to {mountpoint} do not end, because the source does not answer; {}{}",
        after_death(.dead.then_some(mountpoint)),
        .left.map_or(String::new(), |pid| format!("; process {pid} stays until it does")))]
    Stuck {
        mountpoint: PathBuf,
        /// A process that cannot be ended.
        left: Option<u32>,
        /// Whether the mount stays.
        dead: bool,
    },
    #[error("{1} did not answer within {seconds} s; the mount was given up", seconds = .0.as_secs())]
    NoAnswer(Duration, PathBuf),
    #[error("interrupted before it was mounted")]
    Interrupted,
    #[error("cannot {what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
    #[error("{0} is not mounted")]
    NotMounted(PathBuf),
    #[error("{path} is a mount of type {kind}, not of thrufs: use `{tool} {path}`")]
    NotThrufs {
        path: PathBuf,
        kind: String,
        tool: &'static str,
    },
    #[error("{0} is in use: see `fuser -vm {0}` for who uses it, or unmount with --lazy")]
    InUse(PathBuf),
    #[error("{path} is unmounted, but its server has not ended within {seconds} s (process {pid})",
        seconds = .waited.as_secs())]
    StillRunning {
        path: PathBuf,
        pid: i32,
        waited: Duration,
    },
    #[error(
        "{path} is unmounted here, but not in another mount namespace: its server goes on until process \
         {pid} ({name}) has ended or unmounted it"
    )]
    MountedElsewhere {
        path: PathBuf,
        pid: i32,
        name: String,
    },
    #[error("cannot append to the audit log {path}: {source}")]
    AuditLog { path: PathBuf, source: io::Error },
    #[error("the worker ended before it was ready; run it with --log=debug to see why")]
    WorkerGone,
    #[error("the worker died ({0})")]
    WorkerDied(String),
    #[error(
        "requests do not end, because the source does not answer: process {0} stays until it does"
    )]
    WorkerStuck(u32),
    #[error("cannot share: {0}")]
    Socket(#[from] SocketError),
    #[error(
        "the policy {0} has rules that match on programs (caller-exe): those of a guest are not known to \
         the host"
    )]
    ProgramsOfGuests(PathBuf),
    #[error(
        "namespace_uidmap (--uid-map) is for those who are not root: root's server has every id; \
         translate them with translate_uid"
    )]
    NamespaceOfRoot,
    #[error(transparent)]
    Virtiofsd(#[from] VirtiofsdError),
    #[error(
        "no share with a control socket listens at {0}: it was started with control=none, or \
             with control=PATH (say --control PATH), or it has ended"
    )]
    NoControlOfShare(PathBuf),
    #[error(
        "the benchmark is a program of its own, and {0} is not there: install it beside thrufs, from the \
         sources with `cargo install --path crates/bench`, or from the package that thrufs came from"
    )]
    NoBench(PathBuf),
    #[error("cannot start the benchmark {program}: {source}")]
    Bench { program: PathBuf, source: io::Error },
    #[error(transparent)]
    Serving(#[from] thrufs_hostdir::ConfigError),
    #[error(transparent)]
    Policy(#[from] PolicyFileError),
    #[error("cannot look at {path}: {source}")]
    Unlooked { path: PathBuf, source: io::Error },
    #[error("{path} is not in {root}, the root of the policy's paths: say which with --root")]
    OutsideRoot { path: PathBuf, root: PathBuf },
    #[error("no control socket: {0}; say control=PATH for another place, or control=none")]
    ControlPlace(#[from] PlaceError),
    #[error("cannot explain {path}: {source}")]
    Explained { path: PathBuf, source: io::Error },
    #[error("cannot explain {0}: it lies on a mount that is not in view here")]
    Detached(PathBuf),
    #[error("{path} lies on no mount of thrufs, but on {mountpoint}, of type {kind}{hint}")]
    NotOnThrufs {
        path: PathBuf,
        mountpoint: PathBuf,
        kind: String,
        hint: &'static str,
    },
    #[error(
        "the mount on {mountpoint} has no control socket at {socket}: it was mounted with \
         control=none, or with control=PATH (say --control PATH), or its log says why it has none"
    )]
    NoControl {
        mountpoint: PathBuf,
        socket: PathBuf,
    },
    #[error("only user {user}, who mounted {mountpoint}, and root may ask its server")]
    OthersControl { mountpoint: PathBuf, user: u32 },
    #[error(
        "no server listens at {socket}: that of {mountpoint} has ended, or it was mounted with \
         control=none and the socket is an earlier one's"
    )]
    ControlDead {
        mountpoint: PathBuf,
        socket: PathBuf,
    },
    #[error("cannot ask the server of {path}: {source}")]
    Control { path: PathBuf, source: io::Error },
    #[error("{path}: {why}")]
    ControlRefused { path: PathBuf, why: String },
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
}

/// What has become of a mount without a server.
fn after_death(dead: Option<&Path>) -> String {
    match dead.map(Path::display) {
        None => "the mount was taken away".to_owned(),
        Some(path) => format!(
            "the mount stays and answers ENOTCONN, until somebody takes it away (`thrufs unmount {path}`)"
        ),
    }
}

/// Attaches what was tried to an error of the system.
pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> CommandError {
    move |error| CommandError::System {
        what,
        source: error.into(),
    }
}

impl CommandError {
    /// Whether it is the command line that is wrong, and not the world.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(
            self,
            CommandError::CommandLine(_)
                | CommandError::Helper(_)
                | CommandError::Option(_)
                | CommandError::Log { .. }
                | CommandError::Virtiofsd(_)
        )
    }

    /// As mount(8) counts: 1 for usage, 2 for the system, 32 for a mount that failed.
    pub(crate) fn helper_code(&self) -> u8 {
        match self {
            error if error.is_usage() => 1,
            CommandError::System { .. } | CommandError::Mount(MountError::Device(_)) => 2,
            _ => 32,
        }
    }
}

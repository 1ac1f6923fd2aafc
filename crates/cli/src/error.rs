//! Errors for the user of the command, with the remedy.
//!
//! Every error is printed once, in `main`; its text includes its cause.

use crate::control::socket::ControlSocketError;
use crate::listening::SocketError;
use crate::mount_helper::HelperError;
use crate::options::OptionError;
use crate::run::rules::RuleError;
use crate::virtiofsd::VirtiofsdError;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thrufs::MountError;
use thrufs_policy::PolicyFileError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Helper(#[from] HelperError),
    #[error(transparent)]
    Option(#[from] OptionError),
    #[error(
        "bad value `{directives}` for option `log`: {problem}; use error, warn, info, debug or trace"
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
        "a dead FUSE mount is on {0} (its server has ended): unmount it first with `thrufs unmount {0}`"
    )]
    MountPointDead(PathBuf),
    #[error("cannot use the mount point {path}: {source}")]
    MountPoint { path: PathBuf, source: io::Error },
    #[error(
        "the mount point {mountpoint} is inside the source {source_path}, and the mount would contain \
         itself: mount as root, elsewhere, or on the source itself"
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
    ServerDied { what: String, dead: Option<PathBuf> },
    #[error("requests to {mountpoint} do not end, because the source does not answer; {}{}",
        after_death(.dead.then_some(mountpoint)),
        .left.map_or(String::new(), |pid| format!("; process {pid} stays until it does")))]
    Stuck {
        mountpoint: PathBuf,
        /// A process that cannot be killed.
        left: Option<u32>,
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
    #[error("{0} is in use: list its users with `fuser -vm {0}`, or unmount with --lazy")]
    InUse(PathBuf),
    #[error("{path} is unmounted, but its server has not ended within {seconds} s (process {pid})",
        seconds = .waited.as_secs())]
    StillRunning {
        path: PathBuf,
        pid: i32,
        waited: Duration,
    },
    #[error(
        "{path} is unmounted here, but still mounted in another mount namespace: its server runs until \
         process {pid} ({name}) ends or unmounts it"
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
        "the policy {0} has rules that match on programs (caller-exe), but the host does not see the \
         programs of a guest: remove these rules"
    )]
    ProgramsOfGuests(PathBuf),
    #[error(
        "namespace_uidmap (--uid-map) is for ordinary users: root has every id; use translate_uid"
    )]
    NamespaceOfRoot,
    #[error(transparent)]
    Virtiofsd(#[from] VirtiofsdError),
    #[error(
        "no share with a control socket listens at {0}: it was started with control=none, or with \
         control=PATH (use --control PATH), or it has ended"
    )]
    NoControlOfShare(PathBuf),
    #[error(
        "the benchmark {0} is not installed: it is a separate program; install it beside thrufs, with \
         `cargo install --path crates/bench` or from the package of thrufs"
    )]
    NoBench(PathBuf),
    #[error("cannot start the benchmark {program}: {source}")]
    Bench { program: PathBuf, source: io::Error },
    #[error(transparent)]
    Serving(#[from] thrufs_hostdir::ConfigError),
    #[error(transparent)]
    Policy(#[from] PolicyFileError),
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error("cannot stat {path}: {source}")]
    Unlooked { path: PathBuf, source: io::Error },
    #[error("{path} is not beneath {root}, the root of the policy's paths: set it with --root")]
    OutsideRoot { path: PathBuf, root: PathBuf },
    #[error("no control socket: {0}; use control=PATH for another place, or control=none")]
    ControlPlace(#[from] ControlSocketError),
    #[error("cannot explain {path}: {source}")]
    Explained { path: PathBuf, source: io::Error },
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
        "the mount on {mountpoint} has no control socket at {socket}: it was mounted with control=none, \
         or with control=PATH (use --control PATH), or its log gives the reason"
    )]
    NoControl {
        mountpoint: PathBuf,
        socket: PathBuf,
    },
    #[error(
        "only user {user}, the owner of the mount on {mountpoint}, and root may query its server"
    )]
    OthersControl { mountpoint: PathBuf, user: u32 },
    #[error(
        "no server listens at {socket}: the server of {mountpoint} has ended, or was started with \
         control=none and the socket is left from an earlier mount"
    )]
    ControlDead {
        mountpoint: PathBuf,
        socket: PathBuf,
    },
    #[error("cannot query the server of {path}: {source}")]
    Control { path: PathBuf, source: io::Error },
    #[error("{path}: {why}")]
    ControlRefused { path: PathBuf, why: String },
    #[error("the option `{0}` is for `thrufs mount`, not for `thrufs run`")]
    NotForRun(&'static str),
    #[error("cannot build the sandbox: {0}")]
    Sandbox(String),
    #[error("{1}")]
    NotExecuted(i32, String),
    #[error("cannot run a command in /: name the directory of the project")]
    WholeSystem,
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
    #[error("the sandbox was killed")]
    SandboxDied,
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
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
}

fn after_death(dead: Option<&Path>) -> String {
    match dead.map(Path::display) {
        None => "the mount was removed".to_owned(),
        Some(path) => format!(
            "the mount stays and returns ENOTCONN until it is unmounted (`thrufs unmount {path}`)"
        ),
    }
}

/// Adds the failed action to a system error.
pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> CommandError {
    move |error| CommandError::System {
        what,
        source: error.into(),
    }
}

impl CommandError {
    /// Whether the command line is wrong.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(
            self,
            CommandError::Helper(_)
                | CommandError::Option(_)
                | CommandError::Log { .. }
                | CommandError::Rule(_)
                | CommandError::Virtiofsd(_)
        )
    }

    /// Exit statuses of mount(8): 1 usage, 2 system, 32 mount failure.
    pub(crate) fn helper_code(&self) -> u8 {
        match self {
            error if error.is_usage() => 1,
            CommandError::System { .. } | CommandError::Mount(MountError::Device(_)) => 2,
            _ => 32,
        }
    }
}

//! `thrufs upgrade`: gives running servers another program.

use super::request::REQUEST;
use crate::control::client::{
    ask_within, meet, reach, receive_line, result, share_at, upgrades_beside, upgrades_of,
    upgrades_of_share,
};
use crate::control::finding::{Located, locate};
use crate::control::protocol::Command;
use crate::control::query_error::QueryError;
use crate::control::socket::of_shares;
use crate::error::{CommandError, StartupError, system, system_at};
use crate::mount_table::{self, Mount};
use crate::output::{print, report};
use crate::process::OWN_PROGRAM;
use clap::Parser;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde_json::Value;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thrufs_hostdir::printable;
use thrufs_sys::fd_passing;

/// Longer than the server's own limits together.
const REPLY_TIMEOUT: Duration = Duration::from_secs(90);

/// The same for one of several servers, of another user: who may be hostile, and must not delay the others' for long.
const OTHER_USER_TIMEOUT: Duration = Duration::from_secs(10);

/// For a server to be connected to, and to say what it is.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

const TYPE: &str = "fuse.thrufs";

#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    #[error("{0} is not a mount point, nor the socket of a share")]
    NotServed(PathBuf),
    #[error(
        "cannot upgrade {0}: it was mounted without resume=N, so its requests end with its server; unmount it, and mount \
         it again with -o resume=N (over /dev/fuse, without io_uring)"
    )]
    NotResumable(PathBuf),
    #[error(
        "cannot upgrade {0}: its server takes no upgrades; it was mounted with control=none, with control=PATH (use \
         --control PATH), or by an older thrufs"
    )]
    NotTaken(PathBuf),
    #[error(
        "cannot upgrade {0}: its server takes no upgrades; it is none of thrufs, or was started with resume=0, with \
         control=none, with control=PATH (use --control PATH), or by an older thrufs"
    )]
    NotTakenByShare(PathBuf),
    #[error(
        "{place} may be upgraded or not: its server, of user {user}, has not replied within {} s; name it to wait longer",
        OTHER_USER_TIMEOUT.as_secs()
    )]
    NoReply { place: PathBuf, user: u32 },
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error(transparent)]
    Startup(#[from] StartupError),
}

impl CommandError for UpgradeError {}

/// Have running servers go on with this program, without unmounting or disconnecting virtual machines
///
/// Mounts need the option resume=N, which shares have unless it was set to 0: others are served by the program that
/// started them until they are unmounted or stopped.
#[derive(Parser)]
#[command(name = "upgrade")]
pub(crate) struct UpgradeArguments {
    /// All mounts and shares of thrufs: as root those of all users, else one's own
    #[arg(long, conflicts_with_all = ["PLACE", "control"])]
    all: bool,
    /// The program to go on with, instead of this one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The control socket, where the server was given control=PATH
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Mount points (mounted with resume=N), and the sockets of shares
    #[arg(id = "PLACE", required_unless_present = "all")]
    places: Vec<PathBuf>,
}

/// What is upgraded.
struct Target {
    /// For messages.
    place: PathBuf,
    /// The socket for upgrades, and its user.
    socket: Option<(PathBuf, u32)>,
    /// `None` for a share.
    mount: Option<Mount>,
    /// One of several: its server is waited for a short time, if it is another user's.
    is_one_of_all: bool,
}

impl Target {
    fn of_mount(place: &Path, mount: Mount, control: Option<&Path>) -> Target {
        Target {
            place: place.into(),
            socket: upgrades_of(&mount, control),
            mount: Some(mount),
            is_one_of_all: false,
        }
    }

    fn user(&self) -> Option<u32> {
        self.socket.as_ref().map(|(_, user)| *user)
    }

    /// For the reply.
    fn time(&self) -> Duration {
        let own = rustix::process::geteuid().as_raw();
        match self.is_one_of_all && self.user() != Some(own) {
            true => OTHER_USER_TIMEOUT,
            false => REPLY_TIMEOUT,
        }
    }
}

/// Upgrades all that it can; fails with the last error, after printing the earlier ones.
pub(crate) fn run(arguments: UpgradeArguments) -> Result<(), UpgradeError> {
    let path = arguments.program.as_deref().unwrap_or(OWN_PROGRAM.as_ref());
    let program = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let program = program.map_err(system_at("open the program", path))?;
    let mut failed: Option<UpgradeError> = None;
    let mut add = |path: &Path, outcome| match outcome {
        Ok(()) => print(format!("upgraded {}\n", path.display())),
        Err(error) => {
            if let Some(earlier) = failed.replace(error) {
                report(format_args!("thrufs: {earlier}"));
            }
        }
    };
    let control = arguments.control.as_deref();
    for path in &arguments.places {
        let target = target_at(path, control);
        add(
            path,
            target.and_then(|target| upgrade(target, control, &program)),
        );
    }
    if arguments.all {
        for mut target in all_targets()? {
            target.is_one_of_all = true;
            let place = target.place.clone();
            add(&place, upgrade(target, None, &program));
        }
    }
    failed.map_or(Ok(()), Err)
}

/// One mount of each file system, and the shares.
fn all_targets() -> Result<Vec<Target>, StartupError> {
    let mut all = mount_table::all().map_err(system("read the table of mounts"))?;
    let own = rustix::process::geteuid().as_raw();
    all.retain(|mount| mount.kind == TYPE && (own == 0 || mount.user == Some(own)));
    let mut seen = Vec::new();
    all.retain(|mount| {
        let is_new = !seen.contains(&mount.device);
        seen.push(mount.device);
        is_new
    });
    let mounts = all.into_iter();
    let mounts = mounts.map(|mount| Target::of_mount(&mount.path.clone(), mount, None));
    let shares = of_shares().into_iter().filter_map(share_of);
    Ok(mounts.chain(shares).collect())
}

/// The share with this control socket; `None` if only a socket is left of it.
fn share_of((user, control): (u32, PathBuf)) -> Option<Target> {
    let met = meet(&control, user, QUERY_TIMEOUT).ok()?;
    let said = met.statistics.as_ref().and_then(|it| it.get("share"));
    let place = said.and_then(Value::as_str).map(printable);
    Some(Target {
        place: place.map_or_else(|| control.clone(), PathBuf::from),
        socket: upgrades_beside(&control).map(|place| (place, user)),
        mount: None,
        is_one_of_all: true,
    })
}

fn target_at(path: &Path, control: Option<&Path>) -> Result<Target, UpgradeError> {
    if let Some(share) = share_at(path) {
        return Ok(Target {
            place: path.into(),
            socket: upgrades_of_share(&share, control),
            mount: None,
            is_one_of_all: false,
        });
    }
    let located = locate(path)?;
    if !located.components.is_empty() {
        return Err(UpgradeError::NotServed(path.into()));
    }
    Ok(Target::of_mount(path, located.mount, control))
}

fn upgrade(target: Target, control: Option<&Path>, program: &OwnedFd) -> Result<(), UpgradeError> {
    let own = rustix::process::geteuid().as_raw();
    let path = target.place.clone();
    if let Some(user) = target.user().filter(|user| own != 0 && *user != own) {
        return Err(QueryError::OtherUser(path, user).into());
    }
    let follow = match control {
        Some(_) => OFlags::empty(),
        None => OFlags::NOFOLLOW,
    };
    let (time, begun) = (target.time(), Instant::now());
    let reached = target.socket.as_ref();
    let reached = reached.map(|(place, user)| (reach(place, follow, *user, time), *user));
    let (stream, user) = match reached {
        Some((Ok(stream), user)) => (stream, user),
        _ => return Err(why_not(target, control)),
    };
    let failed = |errno: Errno| QueryError::query(&path)(errno);
    set_socket_timeout(&stream, Timeout::Recv, Some(time)).map_err(failed)?;
    fd_passing::send(stream.as_fd(), REQUEST, &[program.as_fd()]).map_err(failed)?;
    let line = receive_line(&stream, time).map_err(|error| {
        match time == OTHER_USER_TIMEOUT && begun.elapsed() >= time {
            true => UpgradeError::NoReply {
                place: path.clone(),
                user,
            },
            false => QueryError::query(&path)(error).into(),
        }
    })?;
    result(&path, &line).map(drop).map_err(Into::into)
}

/// Why a server takes no upgrades, as far as it answers queries.
fn why_not(target: Target, control: Option<&Path>) -> UpgradeError {
    let path = target.place;
    let Some(mount) = target.mount else {
        return UpgradeError::NotTakenByShare(path);
    };
    let components = Vec::new();
    let located = Located { mount, components };
    match ask_within(&path, &located, control, &Command::Options, QUERY_TIMEOUT) {
        Ok(options)
            if options
                .pointer("/server/deaths_max")
                .and_then(Value::as_u64)
                == Some(0) =>
        {
            UpgradeError::NotResumable(path)
        }
        Err(error @ (QueryError::NotOnThrufs { .. } | QueryError::OtherUser(..))) => error.into(),
        _ => UpgradeError::NotTaken(path),
    }
}

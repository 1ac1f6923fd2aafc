//! `thrufs upgrade`: gives running servers another program.

use super::request::REQUEST;
use crate::control::client::{TIMEOUT, ask, reach, receive_line, result, share_at, upgrades_of};
use crate::control::finding::{Located, locate};
use crate::control::protocol::Command;
use crate::control::query_error::QueryError;
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
use std::time::Duration;
use thrufs_sys::fd_passing;

/// Longer than the server's own limits together.
const REPLY_TIMEOUT: Duration = Duration::from_secs(90);

const TYPE: &str = "fuse.thrufs";

#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    #[error(
        "cannot upgrade {0}: it is a share, which takes its program when it starts: restart it, or migrate its guests"
    )]
    Share(PathBuf),
    #[error("{0} is not a mount point")]
    NotMounted(PathBuf),
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
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error(transparent)]
    Startup(#[from] StartupError),
}

impl CommandError for UpgradeError {}

/// Have running servers go on with this program, without unmounting
///
/// Of mounts that were mounted with the option resume=N: others, and shares, are served by the program that started them
/// until they are unmounted or stopped.
#[derive(Parser)]
#[command(name = "upgrade")]
pub(crate) struct UpgradeArguments {
    /// All mounts of thrufs: as root those of all users, else one's own
    #[arg(long, conflicts_with_all = ["MOUNTPOINT", "control"])]
    all: bool,
    /// The program to go on with, instead of this one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The control socket, where the mount was given control=PATH
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// The mount points, mounted with resume=N
    #[arg(id = "MOUNTPOINT", required_unless_present = "all")]
    mountpoints: Vec<PathBuf>,
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
    for path in &arguments.mountpoints {
        add(
            path,
            upgrade_at(path, arguments.control.as_deref(), &program),
        );
    }
    if arguments.all {
        for mount in all_mounts()? {
            let path = mount.path.clone();
            add(&path, upgrade(&path, mount, None, &program));
        }
    }
    failed.map_or(Ok(()), Err)
}

/// One mount of each file system.
fn all_mounts() -> Result<Vec<Mount>, StartupError> {
    let mut all = mount_table::all().map_err(system("read the table of mounts"))?;
    let own = rustix::process::geteuid().as_raw();
    all.retain(|mount| mount.kind == TYPE && (own == 0 || mount.user == Some(own)));
    let mut seen = Vec::new();
    all.retain(|mount| {
        let is_new = !seen.contains(&mount.device);
        seen.push(mount.device);
        is_new
    });
    Ok(all)
}

fn upgrade_at(path: &Path, control: Option<&Path>, program: &OwnedFd) -> Result<(), UpgradeError> {
    if share_at(path).is_some() {
        return Err(UpgradeError::Share(path.into()));
    }
    let located = locate(path)?;
    if !located.components.is_empty() {
        return Err(UpgradeError::NotMounted(path.into()));
    }
    upgrade(path, located.mount, control, program)
}

fn upgrade(
    path: &Path,
    mount: Mount,
    control: Option<&Path>,
    program: &OwnedFd,
) -> Result<(), UpgradeError> {
    let own = rustix::process::geteuid().as_raw();
    if let Some(user) = mount.user.filter(|user| own != 0 && *user != own) {
        return Err(QueryError::OtherUser(path.into(), user).into());
    }
    let follow = match control {
        Some(_) => OFlags::empty(),
        None => OFlags::NOFOLLOW,
    };
    let place = upgrades_of(&mount, control);
    let reached = place.map(|(place, user)| reach(&place, follow, user, TIMEOUT));
    let stream = match reached {
        Some(Ok(stream)) => stream,
        _ => return Err(why_not(path, mount, control)),
    };
    let failed = |errno: Errno| QueryError::query(path)(errno);
    set_socket_timeout(&stream, Timeout::Recv, Some(REPLY_TIMEOUT)).map_err(failed)?;
    fd_passing::send(stream.as_fd(), REQUEST, &[program.as_fd()]).map_err(failed)?;
    let line = receive_line(&stream, REPLY_TIMEOUT).map_err(QueryError::query(path))?;
    result(path, &line).map(drop).map_err(Into::into)
}

/// Why a server takes no upgrades, as far as it answers queries.
fn why_not(path: &Path, mount: Mount, control: Option<&Path>) -> UpgradeError {
    let components = Vec::new();
    let located = Located { mount, components };
    match ask(path, &located, control, &Command::Options) {
        Ok(options)
            if options
                .pointer("/server/deaths_max")
                .and_then(Value::as_u64)
                == Some(0) =>
        {
            UpgradeError::NotResumable(path.into())
        }
        Err(error @ (QueryError::NotOnThrufs { .. } | QueryError::OtherUser(..))) => error.into(),
        _ => UpgradeError::NotTaken(path.into()),
    }
}

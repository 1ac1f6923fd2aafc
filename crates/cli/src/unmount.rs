//! `thrufs unmount`: unmounts, and waits until the server has ended.

use crate::error::{CommandError, StartupError, system};
use crate::lookup;
use crate::mount_table::{self, DeviceNumber};
use crate::mounting;
use crate::output::report;
use crate::waiting;
use clap::Parser;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thrufs::MountError;

/// For the exit of the server, longer than its own limits.
const SERVER_TIMEOUT: Duration = Duration::from_secs(30);

/// Before other mount namespaces are searched.
const OTHERS_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub(crate) enum UnmountError {
    #[error("{0} is not mounted")]
    NotMounted(PathBuf),
    #[error("{0} is a mount of type {1}, not of thrufs: use `{2} {0}`")]
    NotThrufs(PathBuf, String, &'static str),
    #[error("{0} is in use: list its users with `fuser -vm {0}`, or unmount with --lazy")]
    InUse(PathBuf),
    #[error("{0} is unmounted, but its server has not ended within {seconds} s (process {1})",
        seconds = SERVER_TIMEOUT.as_secs())]
    StillRunning(PathBuf, i32),
    #[error(
        "{0} is unmounted here, but still mounted in another mount namespace: its server runs until \
         process {1} ({2}) ends or unmounts it"
    )]
    MountedElsewhere(PathBuf, i32, String),
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Startup(#[from] StartupError),
}

impl CommandError for UnmountError {}

struct ServerProcess {
    pid: i32,
    descriptor: OwnedFd,
}

/// Unmount what thrufs mounted, and wait until its server has ended
#[derive(Parser)]
#[command(name = "unmount", visible_alias = "umount")]
pub(crate) struct UnmountArguments {
    /// Unmount while in use (lazy unmount); open files stay usable
    #[arg(short, long)]
    lazy: bool,
    /// The mount point
    #[arg(id = "MOUNTPOINT", required = true)]
    mountpoints: Vec<PathBuf>,
}

/// Unmounts all that it can; fails with the last error, after printing the earlier ones.
pub(crate) fn run(arguments: UnmountArguments) -> Result<(), UnmountError> {
    let mut failed = None;
    for mountpoint in arguments.mountpoints {
        if let Err(error) = unmount(&mountpoint, arguments.lazy)
            && let Some(earlier) = failed.replace(error)
        {
            report(format_args!("thrufs: {earlier}"));
        }
    }
    failed.map_or(Ok(()), Err)
}

fn unmount(mountpoint: &Path, lazy: bool) -> Result<(), UnmountError> {
    let path = resolve(mountpoint)?;
    let mounts = mount_table::all().map_err(system("read the table of mounts"))?;
    let Some(mount) = mount_table::on_top_at(&mounts, &path) else {
        return Err(UnmountError::NotMounted(path));
    };
    let servers = servers_of(mount.device);
    if mount.kind != "fuse.thrufs" && servers.is_empty() {
        let tool = match mount.kind.starts_with("fuse") {
            true => "fusermount3 -u",
            false => "umount",
        };
        return Err(UnmountError::NotThrufs(path, mount.kind.clone(), tool));
    }
    match unmount_path(&path, mount.id, lazy) {
        // A dead mount is of no use to its users.
        Err(UnmountError::InUse(_)) if mounting::is_dead(&path) => {
            unmount_path(&path, mount.id, true)?;
        }
        taken => taken?,
    }
    // Mounted elsewhere too, or in use: the server continues.
    let mut same = mounts.iter().filter(|it| it.device == mount.device);
    if lazy || same.nth(1).is_some() {
        return Ok(());
    }
    wait_for(&servers, mount.device, &path)
}

/// The path as in the mount table. The mount point itself is not accessed: its server may be dead.
fn resolve(path: &Path) -> Result<PathBuf, UnmountError> {
    let wrong = mounting::unusable(path);
    let absolute = std::path::absolute(path).map_err(&wrong)?;
    let real = |path: &Path| lookup::path_of(lookup::open(path, OFlags::PATH, Mode::empty())?);
    match (real(&absolute), absolute.parent(), absolute.file_name()) {
        (Ok(real), ..) => Ok(real),
        (Err(error), ..) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(wrong(error).into())
        }
        (Err(_), Some(parent), Some(name)) => Ok(real(parent).map_err(wrong)?.join(name)),
        (Err(_), ..) => Ok(absolute),
    }
}

fn unmount_path(path: &Path, id: u64, lazy: bool) -> Result<(), UnmountError> {
    let result = mounting::unmount(path, Some(id), lazy);
    result.map_err(|error| match &error {
        MountError::Unmount { source, .. } if source.kind() == io::ErrorKind::ResourceBusy => {
            UnmountError::InUse(path.into())
        }
        MountError::Helper(words) if words.contains("busy") => UnmountError::InUse(path.into()),
        _ => error.into(),
    })
}

fn wait_for(
    servers: &[ServerProcess],
    device: DeviceNumber,
    path: &Path,
) -> Result<(), UnmountError> {
    let start = Instant::now();
    for server in servers {
        let has_ended_by =
            |deadline| waiting::readable([Some(server.descriptor.as_fd())], Some(deadline))[0];
        if has_ended_by(start + OTHERS_AFTER) {
            continue;
        }
        // A namespace created while it was mounted has its own mount of it.
        let is_server = |pid| servers.iter().any(|server| server.pid == pid);
        if let Some((pid, name)) = mount_table::process_that_sees(device, is_server) {
            return Err(UnmountError::MountedElsewhere(path.into(), pid, name));
        }
        if !has_ended_by(start + SERVER_TIMEOUT) {
            return Err(UnmountError::StillRunning(path.into(), server.pid));
        }
    }
    Ok(())
}

/// Supervisor and worker of this FUSE connection. Those of other users are not visible, nor any on
/// kernels before 6.11, whose fdinfo lacks the connection.
fn servers_of(device: DeviceNumber) -> Vec<ServerProcess> {
    let server = |(pid, path): (i32, PathBuf)| {
        let name = fs::read_to_string(path.join("comm")).ok()?;
        // Opened before it is checked: the process id could be reused in between.
        let descriptor = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let mut held = mount_table::connections_of(&path);
        let ours = name.starts_with("thrufs") && held.any(|it| it == device.minor);
        ours.then_some(ServerProcess { pid, descriptor })
    };
    mount_table::processes().filter_map(server).collect()
}

//! `thrufs mount`: checks the arguments, starts the server, and returns when the mount responds.

use crate::arguments::{Purpose, directory, flags, option_list, required, settings};
use crate::channel::{Notice, Order};
use crate::config::MountConfig;
use crate::confinement;
use crate::error::system;
use crate::log;
use crate::lookup;
use crate::mounting::error::MountCommandError;
use crate::mounting::{self, DeadMount, unusable};
use crate::options::{self, Form, Group, OPTIONS, OptionError, Setting, Use};
use crate::output::report;
use crate::policy_file::PolicyFiles;
use crate::process::{Process, Role};
use crate::source;
use crate::supervisor;
use crate::task::Task;
use clap::{ArgMatches, Command};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountPropagationFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For the first reply of a new mount.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct MountArguments {
    pub(crate) source: PathBuf,
    pub(crate) mountpoint: PathBuf,
    pub(crate) settings: Vec<Setting>,
}

pub(crate) fn command(purpose: Purpose) -> Command {
    let command = Command::new("mount")
        .about("Mount a directory somewhere else, served by thrufs")
        .args_override_self(false)
        .arg(option_list(purpose, Use::Mount))
        .arg(directory("SOURCE", "The directory to serve"))
        .arg(directory("MOUNTPOINT", "The directory to mount it on"))
        .after_help(list_only_help());
    flags(command, Use::Mount)
}

fn list_only_help() -> String {
    let names: Vec<&str> = OPTIONS
        .iter()
        .filter(|option| option.form == Form::List)
        .map(|o| o.name)
        .collect();
    format!(
        "{}, after -o alone:\n  {}",
        Group::Mount.title(),
        names.join(", ")
    )
}

pub(crate) fn arguments(matches: &mut ArgMatches) -> Result<MountArguments, OptionError> {
    Ok(MountArguments {
        settings: settings(matches, Use::Mount)?,
        source: required(matches, "SOURCE"),
        mountpoint: required(matches, "MOUNTPOINT"),
    })
}

/// A checked mount.
#[derive(Debug)]
pub(crate) struct MountPlan {
    config: MountConfig,
    /// The mount point.
    place: OwnedFd,
    /// The source, and the clone of its mounts if the mount point is inside.
    sources: Vec<OwnedFd>,
    policy: Option<PolicyFiles>,
    /// As given.
    settings: Vec<Setting>,
}

/// Mounts what the arguments name.
pub(crate) fn run(matches: &mut ArgMatches) -> Result<(), MountCommandError> {
    plan(arguments(matches)?)?.carry_out()
}

/// Checks all that can be checked before mounting.
pub(crate) fn plan(arguments: MountArguments) -> Result<MountPlan, MountCommandError> {
    let MountArguments {
        source,
        mountpoint,
        settings,
    } = arguments;
    // Options first: their errors do not depend on the paths.
    let mut checked = options::resolve_mount(&settings)?;
    checked.server.make_absolute()?;
    log::filter(&checked.server)?;
    let privileged = mounting::is_privileged();
    if !privileged && !checked.has(MountAttrFlags::MOUNT_ATTR_NOSUID) {
        return Err(MountCommandError::RootOnly("suid"));
    }
    if !privileged && !checked.has(MountAttrFlags::MOUNT_ATTR_NODEV) {
        return Err(MountCommandError::RootOnly("dev"));
    }
    let policy = checked.server.policy.as_ref();
    let policy = policy.map(|path| PolicyFiles::open(path, &checked.serving));
    let policy = policy.transpose()?;
    let (directory, source) = source::open(&source)?;
    let (place, mountpoint) = open_mountpoint(&mountpoint)?;
    let is_same = mountpoint == source;
    if !is_same && mounting::fuse_on(&mountpoint).is_some() {
        let shown = mountpoint.display();
        report(format_args!(
            "thrufs: something is mounted on {shown} already: the new mount covers it"
        ));
    }
    // A mount on the source itself covers it, so that its path finds only the mount.
    let sources = if mountpoint.starts_with(&source) && (privileged || !is_same) {
        if !privileged {
            return Err(MountCommandError::Recursive {
                source_path: source,
                mountpoint,
            });
        }
        // In a clone, in which the mount to be made does not appear: it would contain itself.
        let clone = confinement::clone_mounts(&directory, MountPropagationFlags::PRIVATE);
        let (inside, clone) = clone.map_err(system("clone the mounts of the source"))?;
        vec![inside, clone]
    } else {
        vec![directory]
    };
    Ok(MountPlan {
        config: MountConfig {
            source,
            mountpoint,
            ..checked
        },
        place,
        sources,
        policy,
        settings,
    })
}

/// Opens it, and returns its path without symbolic links, too.
fn open_mountpoint(path: &Path) -> Result<(OwnedFd, PathBuf), MountCommandError> {
    let is_mounted = |path: &Path| mounting::fuse_on(path).is_some();
    let wrong = |error: io::Error| match Errno::from_io_error(&error) {
        Some(Errno::NOENT) => MountCommandError::MountPointMissing(path.into()),
        Some(Errno::NOTDIR) => MountCommandError::MountPointNotDirectory(path.into()),
        // Over io_uring, the last requests of a dead connection get one of the others.
        Some(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED) => {
            DeadMount(path.into()).into()
        }
        Some(Errno::ACCESS) if std::fs::canonicalize(path).is_ok_and(|it| is_mounted(&it)) => {
            MountCommandError::Occupied(path.into())
        }
        _ => unusable(path)(error).into(),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let place = lookup::open(path, flags, Mode::empty()).map_err(wrong)?;
    let canonical = lookup::path_of(&place).map_err(wrong)?;
    // Attributes of a dead mount may be cached.
    if is_mounted(&canonical) && mounting::is_dead(&canonical) {
        return Err(DeadMount(path.into()).into());
    }
    Ok((place, canonical))
}

impl MountPlan {
    /// Mounts; serves until the end in the foreground, otherwise returns when the mount responds.
    pub(crate) fn carry_out(self) -> Result<(), MountCommandError> {
        if self.config.server.foreground {
            return supervisor::run(self.config, self.place, self.sources, self.policy, None);
        }
        let mut supervisor = Process::start(Role::Supervisor, self.config.paths())
            .map_err(system("start the server"))?;
        let policy = self.policy.map(PolicyFiles::into_message);
        let descriptors = [self.place].into_iter().chain(self.sources).collect();
        let serve = Order::Serve(Box::new(self.config.clone()), descriptors);
        for message in policy.iter().chain([&serve]) {
            let sent = supervisor.channel.send(message);
            sent.map_err(system("send to the server"))?;
        }
        match supervisor
            .channel
            .receive()
            .map_err(system("receive from the server"))?
        {
            Some(Notice::Ready) => wait_for_answer(&self.config.mountpoint, &mut supervisor),
            Some(Notice::Failed(why)) => {
                let _ = supervisor.wait();
                Err(MountCommandError::Server(why))
            }
            _ => {
                let _ = supervisor.wait();
                Err(MountCommandError::ServerGone)
            }
        }
    }
}

/// A statfs(2) from this process: a thread of the server that waits for its own reply could block for
/// ever.
fn wait_for_answer(mountpoint: &Path, supervisor: &mut Process) -> Result<(), MountCommandError> {
    let path = mountpoint.to_owned();
    let asking =
        Task::start(move || rustix::fs::statvfs(&path)).map_err(system("start a thread"))?;
    match asking.finish_within(ANSWER_TIMEOUT) {
        Some(Ok(_)) => Ok(()),
        Some(Err(errno)) => {
            let _ = supervisor.channel.send(&Order::Stop);
            let _ = supervisor.wait();
            Err(unusable(mountpoint)(errno).into())
        }
        None => {
            let _ = supervisor.channel.send(&Order::Stop);
            Err(MountCommandError::NoAnswer(
                ANSWER_TIMEOUT,
                mountpoint.into(),
            ))
        }
    }
}

impl std::fmt::Display for MountPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let config = &self.config;
        write!(
            f,
            "{} on {}",
            config.source.display(),
            config.mountpoint.display()
        )?;
        let settings: Vec<String> = self.settings.iter().map(ToString::to_string).collect();
        write!(f, " ({})", settings.join(","))
    }
}

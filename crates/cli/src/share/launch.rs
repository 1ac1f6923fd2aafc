//! `thrufs share`: checks the arguments, then serves until the end.

use super::error::ShareError;
use super::listener::ListenAddress;
use super::supervisor;
use crate::arguments::{Purpose, flags, option_list, parsed, settings};
use crate::config::ShareConfig;
use crate::error::system;
use crate::log;
use crate::options::{self, Group, OptionError, Setting, Use, parse_group};
use crate::policy_file::PolicyFiles;
use crate::source;
use clap::{ArgMatches, Command, CommandFactory, Parser, ValueHint, value_parser};
use std::path::PathBuf;

#[derive(Debug)]
pub(crate) struct ShareArguments {
    pub(crate) source: PathBuf,
    pub(crate) listening: ListenAddress,
    pub(crate) settings: Vec<Setting>,
    pub(crate) once: bool,
}

const DEVICE: &str = Group::Device.title();

/// Share a directory with virtual machines, by virtio-fs over vhost-user
#[derive(Parser)]
#[command(name = "share", args_override_self = false)]
struct ShareCommand {
    /// The socket that virtual machine monitors connect to; created at the start, removed at the end
    #[arg(long, visible_alias = "socket-path", value_name = "PATH", value_hint = ValueHint::AnyPath)]
    #[arg(required_unless_present = "fd", help_heading = DEVICE)]
    socket: Option<PathBuf>,
    /// Number of a listening socket to use instead
    #[arg(long, value_name = "N", value_parser = value_parser!(i32).range(0..))]
    #[arg(conflicts_with_all = ["socket", "socket_group"], help_heading = DEVICE)]
    fd: Option<i32>,
    /// Group that may connect besides the user
    #[arg(long, value_name = "GROUP", value_parser = parse_group, help_heading = DEVICE)]
    socket_group: Option<u32>,
    /// The directory to share
    #[arg(id = "DIR", value_hint = ValueHint::DirPath)]
    source: PathBuf,
}

pub(crate) fn command(purpose: Purpose) -> Command {
    let command = ShareCommand::command().next_help_heading(None);
    flags(command.arg(option_list(purpose, Use::Share)), Use::Share)
}

pub(crate) fn arguments(matches: &mut ArgMatches) -> Result<ShareArguments, OptionError> {
    let settings = settings(matches, Use::Share)?;
    let given: ShareCommand = parsed(matches);
    let listening = match (given.fd, given.socket) {
        (Some(number), _) => ListenAddress::Inherited(number),
        (None, socket) => ListenAddress::At {
            path: socket.expect("clap requires it or a descriptor"),
            group: given.socket_group,
            pid_file: false,
        },
    };
    Ok(ShareArguments {
        listening,
        settings,
        source: given.source,
        once: false,
    })
}

pub(crate) fn run(matches: &mut ArgMatches) -> Result<(), ShareError> {
    serve(arguments(matches)?)
}

/// Checks all that can be checked, and serves.
pub(crate) fn serve(arguments: ShareArguments) -> Result<(), ShareError> {
    let ShareArguments {
        source,
        mut listening,
        settings,
        once,
    } = arguments;
    listening
        .make_absolute()
        .map_err(system("resolve the path of the socket"))?;
    let name = listening.name();
    // Options first: their errors do not depend on the paths.
    let mut checked = options::resolve_share(&settings)?;
    checked.server.make_absolute()?;
    log::filter(&checked.server)?;
    if checked.maps_namespace() && rustix::process::geteuid().is_root() {
        return Err(ShareError::NamespaceOfRoot);
    }
    let policy = checked.server.policy.as_ref();
    let policy = policy.map(|path| PolicyFiles::open(path, &checked.serving));
    let policy = policy.transpose()?;
    let (directory, source) = source::open(&source)?;
    let config = ShareConfig {
        source,
        socket: name,
        ..checked
    };
    supervisor::run(config, directory, policy, &listening, once)
}

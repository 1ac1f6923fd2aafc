//! `thrufs share`: checks the arguments, then serves until the end.

use super::error::ShareError;
use super::listener::ListenAddress;
use super::supervisor;
use crate::arguments::{Purpose, directory, flags, option_list, path, required, settings};
use crate::config::ShareConfig;
use crate::error::system;
use crate::log;
use crate::options::{self, Group, OptionError, Setting, Use, parse_group};
use crate::policy_file::PolicyFiles;
use crate::source;
use clap::{Arg, ArgMatches, Command, value_parser};
use std::path::PathBuf;

#[derive(Debug)]
pub(crate) struct ShareArguments {
    pub(crate) source: PathBuf,
    pub(crate) listening: ListenAddress,
    pub(crate) settings: Vec<Setting>,
    pub(crate) once: bool,
}

pub(crate) fn command(purpose: Purpose) -> Command {
    let device = Group::Device.title();
    let command = Command::new("share")
        .about("Share a directory with virtual machines, by virtio-fs over vhost-user")
        .args_override_self(false)
        .arg(
            path("socket")
                .long("socket")
                .visible_alias("socket-path")
                .value_name("PATH")
                .required_unless_present("fd")
                .help_heading(device)
                .help(
                    "The socket that virtual machine monitors connect to; created at the start, \
                       removed at the end",
                ),
        )
        .arg(
            Arg::new("fd")
                .long("fd")
                .value_name("N")
                .value_parser(value_parser!(i32).range(0..))
                .conflicts_with_all(["socket", "socket-group"])
                .help_heading(device)
                .help("Number of a listening socket to use instead"),
        )
        .arg(
            Arg::new("socket-group")
                .long("socket-group")
                .value_name("GROUP")
                .value_parser(parse_group)
                .help_heading(device)
                .help("Group that may connect besides the user"),
        )
        .arg(option_list(purpose, Use::Share))
        .arg(directory("DIR", "The directory to share"));
    flags(command, Use::Share)
}

pub(crate) fn arguments(matches: &mut ArgMatches) -> Result<ShareArguments, OptionError> {
    let listening = match matches.remove_one("fd") {
        Some(number) => ListenAddress::Inherited(number),
        None => ListenAddress::At {
            path: required(matches, "socket"),
            group: matches.remove_one("socket-group"),
            pid_file: false,
        },
    };
    Ok(ShareArguments {
        listening,
        settings: settings(matches, Use::Share)?,
        source: required(matches, "DIR"),
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

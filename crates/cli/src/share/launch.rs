//! `thrufs share`: checks the arguments, then serves until the end.

use super::listener::ListenAddress;
use super::supervisor;
use crate::config::ShareConfig;
use crate::error::{CommandError, system};
use crate::launch::{make_absolute, open_source};
use crate::log;
use crate::options::Setting;
use crate::policy_file::PolicyFiles;
use std::path::PathBuf;

#[derive(Debug)]
pub(crate) struct ShareArguments {
    pub(crate) source: PathBuf,
    pub(crate) listening: ListenAddress,
    pub(crate) settings: Vec<Setting>,
    pub(crate) once: bool,
}

/// Checks all that can be checked, and serves.
pub(crate) fn run(arguments: ShareArguments) -> Result<(), CommandError> {
    let ShareArguments {
        source,
        mut listening,
        mut settings,
        once,
    } = arguments;
    make_absolute(&mut settings)?;
    listening
        .make_absolute()
        .map_err(system("resolve the path of the socket"))?;
    let name = listening.name();
    // Options first: their errors do not depend on the paths.
    let checked = ShareConfig::resolve(source.clone(), name.clone(), &settings)?;
    log::filter(&checked.server)?;
    if checked.maps_namespace() && rustix::process::geteuid().is_root() {
        return Err(CommandError::NamespaceOfRoot);
    }
    if let Some(path) = &checked.server.policy {
        PolicyFiles::open(path, &checked.serving)?;
    }
    let directory = open_source(&source)?;
    let source = std::fs::canonicalize(&source).map_err(|error| CommandError::Source {
        path: source,
        source: error,
    })?;
    let config = ShareConfig::resolve(source, name, &settings)?;
    supervisor::run(config, directory, &listening, once)
}

//! `virtiofsd`: the command line of virtual machine managers.
//!
//! Called by that name, or as `thrufs virtiofsd`, the command takes the arguments of virtiofsd 1.14: it
//! serves one front end, and ends with it. An option has the same meaning, or requests the default
//! ([`table`]); unsupported values are refused with the reason.
//!
//! | module | content |
//! |---|---|
//! | `table` | every option of virtiofsd, and its effect here |
//! | `list` | the older form of some of them, in a list after `-o` |
//! | `collected` | what they come to |

mod collected;
mod list;
mod table;

use crate::arguments::refuse;
use crate::error::USAGE;
use crate::output::print;
use crate::share::ShareArguments;
use crate::share::launch;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use collected::Collected;
pub(crate) use collected::VirtiofsdError;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

pub(crate) const NAME: &str = "virtiofsd";

/// The features of `--print-capabilities`: live migration, separate arguments for options, and modes for
/// ACLs and labels.
const FEATURES: [&str; 4] = [
    "migrate-precopy",
    "posix-acl-negotiation-mode",
    "security-label-negotiation-mode",
    "separate-options",
];

/// The arguments after the name, if called as virtiofsd.
pub(crate) fn arguments(all: &[OsString]) -> Option<Vec<OsString>> {
    let is_name = |text: &OsStr| Path::new(text).file_name() == Some(OsStr::new(NAME));
    match all {
        [program, ..] if is_name(program) => Some(all.to_vec()),
        [_, command, rest @ ..] if command == NAME => {
            let name = OsString::from(format!("thrufs {NAME}"));
            Some([name].into_iter().chain(rest.iter().cloned()).collect())
        }
        _ => None,
    }
}

pub(crate) fn run(arguments: Vec<OsString>) -> Result<ExitCode, VirtiofsdError> {
    let name = arguments
        .first()
        .and_then(|name| Path::new(name).file_name());
    let name = name.unwrap_or(OsStr::new(NAME)).to_string_lossy();
    let parsed = command(&name).no_binary_name(true);
    let matches = match parsed.try_get_matches_from(arguments.into_iter().skip(1)) {
        Ok(matches) => matches,
        // Also help and version.
        Err(error) => return Ok(refuse(&error, USAGE)),
    };
    if matches.get_flag("print-capabilities") {
        let features = FEATURES
            .map(|feature| format!("    \"{feature}\""))
            .join(",\n");
        print(format!(
            "{{\n  \"type\": \"fs\",\n  \"features\": [\n{features}\n  ]\n}}\n"
        ));
        return Ok(ExitCode::SUCCESS);
    }
    launch::serve(share_arguments(&matches)?)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn command(name: &str) -> Command {
    let mut command = Command::new(name.to_owned())
        .about("Share a directory with a virtual machine, with the arguments of virtiofsd 1.14")
        .version(concat!(env!("CARGO_PKG_VERSION"), " (thrufs)"))
        .args_override_self(true);
    for option in table::options() {
        command = command.arg(option.argument);
    }
    command
}

/// Options and descriptions, for the manual.
pub(crate) fn described() -> impl Iterator<Item = (String, String)> {
    table::options().into_iter().map(|option| {
        let help = option.argument.get_help().cloned().unwrap_or_default();
        (option.pattern(), format!("{help}."))
    })
}

fn share_arguments(matches: &ArgMatches) -> Result<ShareArguments, VirtiofsdError> {
    let mut collected = Collected::default();
    // The defaults of virtiofsd.
    for name in ["noxattr", "noacl", "no_killpriv_v2"] {
        collected.set(name, None)?;
    }
    for option in table::options() {
        if matches.value_source(option.name()) == Some(ValueSource::CommandLine) {
            let mut values = matches.get_raw(option.name()).into_iter().flatten();
            values.try_for_each(|value| option.collect(value, &mut collected))?;
        }
    }
    // Lists override flags, wherever they are.
    let lists = matches.get_many::<OsString>("options");
    for list in lists.into_iter().flatten() {
        let list = list
            .to_str()
            .ok_or_else(|| VirtiofsdError::NotText("-o".to_owned()))?;
        list::collect(list, &mut collected)?;
    }
    collected.finish()
}

#[cfg(test)]
mod tests;

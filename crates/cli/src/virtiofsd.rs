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
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use collected::Collected;
pub(crate) use collected::VirtiofsdError;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;
use table::{OPTIONS, Outcome, Taken, VirtiofsdOption};

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
        let text = format!("{{\n  \"type\": \"fs\",\n  \"features\": [\n{features}\n  ]\n}}\n");
        print(text);
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
    for option in OPTIONS {
        command = command.arg(argument(option));
    }
    command
}

/// Options and descriptions, for the manual.
pub(crate) fn described() -> impl Iterator<Item = (String, String)> {
    OPTIONS.iter().map(|option| {
        let shown = match option.takes {
            Taken::Nothing => option.shown(),
            Taken::One(value) | Taken::Many(value) if option.is_long() => {
                format!("{}={value}", option.shown())
            }
            Taken::One(value) | Taken::Many(value) => format!("{} {value}", option.shown()),
            Taken::Word(words) => format!("{}={}", option.shown(), words.join("|")),
            Taken::WordOrNot(words) => format!("{}[={}]", option.shown(), words.join("|")),
        };
        (shown, format!("{}.", explained(option)))
    })
}

fn explained(option: &VirtiofsdOption) -> String {
    let help = option.help;
    match option.outcome {
        Outcome::Same | Outcome::Done(_) => help.to_owned(),
        Outcome::AlreadySo(why) => format!("{help} [no effect: {why}]"),
    }
}

fn argument(option: &'static VirtiofsdOption) -> Arg {
    let mut arg = Arg::new(option.name).help(explained(option));
    if let Some(short) = option.short {
        arg = arg.short(short);
    }
    if option.is_long() {
        arg = arg.long(option.name);
    }
    let arg = arg.overrides_with_all(option.overrides);
    match option.takes {
        Taken::Nothing => arg.action(ArgAction::SetTrue),
        Taken::One(value_name) => one(arg, value_name),
        Taken::Many(value_name) => one(arg, value_name).action(ArgAction::Append),
        Taken::Word(words) => one(arg, "WORD").value_parser(one_of(words)),
        Taken::WordOrNot(words) => one(arg, "WORD")
            .value_parser(one_of(words))
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("always"),
    }
}

fn one_of(words: &'static [&'static str]) -> impl TypedValueParser<Value = OsString> {
    PossibleValuesParser::new(words).map(OsString::from)
}

fn one(arg: Arg, value_name: &'static str) -> Arg {
    arg.action(ArgAction::Set)
        .value_name(value_name)
        .value_parser(value_parser!(OsString))
}

fn share_arguments(matches: &ArgMatches) -> Result<ShareArguments, VirtiofsdError> {
    let mut collected = Collected::default();
    // The defaults of virtiofsd.
    for name in ["noxattr", "noacl", "no_killpriv_v2"] {
        collected.set(name, None)?;
    }
    for option in OPTIONS {
        if matches.value_source(option.name) == Some(ValueSource::CommandLine) {
            collect(option, matches, &mut collected)?;
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

fn collect(
    option: &VirtiofsdOption,
    matches: &ArgMatches,
    collected: &mut Collected,
) -> Result<(), VirtiofsdError> {
    if let Outcome::AlreadySo(why) = option.outcome {
        tracing::debug!("{} has no effect: {why}", option.shown());
        return Ok(());
    }
    let act = |all: &mut Collected, value: &OsStr| match (option.outcome, option.takes) {
        (Outcome::Done(act), _) => act(all, value),
        (_, Taken::Nothing) => all.set(&option.same_of_ours(), None),
        _ => {
            let text = value.to_str();
            let text = text.ok_or_else(|| VirtiofsdError::NotText(option.shown()))?;
            all.set(&option.same_of_ours(), Some(text))
        }
    };
    match option.takes {
        Taken::Nothing if matches.get_flag(option.name) => act(collected, OsStr::new("")),
        Taken::Nothing => Ok(()),
        _ => {
            let values = matches.get_many::<OsString>(option.name);
            let mut values = values.into_iter().flatten();
            values.try_for_each(|value| act(collected, value))
        }
    }
}

#[cfg(test)]
mod tests;

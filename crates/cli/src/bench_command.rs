//! `thrufs bench`: executes `thrufs-bench`, a separate program beside this one. Its manual
//! page describes its options; a test compares them with its help.

use crate::error::{CommandError, StartupError, system, system_at};
use crate::manual::BENCH;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, ValueHint};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process;

#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error(
        "the benchmark {0} is not installed: it is a separate program; install it beside thrufs, with \
         `cargo install --path crates/bench` or from the package of thrufs"
    )]
    NotInstalled(PathBuf),
    #[error(transparent)]
    Startup(#[from] StartupError),
}

impl CommandError for BenchError {}

const NAME: &str = "bench";

/// The values of an option, for completions.
fn values(option: &str) -> Vec<&'static str> {
    match option {
        "modes" => vec!["dev", "ring", "opens", "dev+pt", "ring+pt", "none"],
        "cache" => vec!["never", "auto", "always"],
        _ => Vec::new(),
    }
}

/// For `thrufs --help` and completions; the benchmark parses its own arguments.
pub(crate) fn command() -> Command {
    let directory = Arg::new("DIR")
        .value_hint(ValueHint::DirPath)
        .help("The directory in question [default: the working directory]");
    Command::new(NAME)
        .about("Measure a directory through thrufs, natively and through other mounts")
        .arg(directory)
        .args(BENCH.split("\n.B --").skip(1).filter_map(argument))
}

/// An option, of its item in the manual page, and the first clause of its description.
fn argument(item: &'static str) -> Option<Arg> {
    let (option, about) = item.split_once('\n')?;
    let about = about.split("\n.").next().unwrap_or_default();
    let about: Vec<&str> = about.split_whitespace().collect();
    let about = about.join(" ");
    let ends = [": ", "; ", ". "].iter().filter_map(|it| about.find(it));
    let about = &about[..ends.min().unwrap_or(about.len())];
    let (name, value) = option.split_once(' ').unwrap_or((option, ""));
    let argument = Arg::new(name)
        .long(name)
        .help(about.trim_end_matches('.').to_owned());
    let hint = match value {
        "" => return Some(argument.action(ArgAction::SetTrue)),
        "FILE" => ValueHint::FilePath,
        "DIR" => ValueHint::DirPath,
        _ => ValueHint::Unknown,
    };
    let argument = argument.action(ArgAction::Append).value_name(value);
    Some(match values(name) {
        none if none.is_empty() => argument.value_hint(hint),
        values => argument.value_parser(PossibleValuesParser::new(values)),
    })
}

/// The arguments after `thrufs bench`.
pub(crate) fn arguments(all: &[OsString]) -> Option<&[OsString]> {
    match all {
        [_, command, rest @ ..] if command == NAME => Some(rest),
        _ => None,
    }
}

/// Executes the benchmark; returns only on failure.
pub(crate) fn start(arguments: &[OsString]) -> BenchError {
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return system("find the benchmark beside this program")(error).into(),
    };
    let program = own.with_file_name("thrufs-bench");
    let source = process::Command::new(&program).args(arguments).exec();
    match source.kind() {
        ErrorKind::NotFound => BenchError::NotInstalled(program),
        _ => system_at("start the benchmark", &program)(source).into(),
    }
}

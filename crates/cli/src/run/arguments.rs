//! The command line of `thrufs run`.

use super::rules::{RuleArguments, profile_argument};
use crate::arguments::{
    Purpose, all, directory, json, occurrences, option_list, path, required, text,
};
use crate::options::{self, OptionError, Setting, Use};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::ffi::OsString;
use std::path::PathBuf;

const RULES: &str = "Rules, in the order in which they are evaluated";
const SANDBOX: &str = "The sandbox";
const RECORDS: &str = "Records";

const EXAMPLES: &str = "\
Not walled off: the network, environment variables, and, without --only, the rest of the home
directory; see thrufs-run(1).

PATTERN is relative to DIR: `secrets` at its top, `**/*.pem` at any depth. Quote it in a shell.
Of --allow, --deny and --hide, the first in this order that matches applies.

Examples:
  thrufs run -- npm install
          Without the secrets of the project in the working directory
  thrufs run --only --also ~/.cargo/bin ~/project -- cargo test
          The same, and without the home directory
  thrufs run --hide 'customers/**' --allow .env.test -- agent
          With rules of your own before the profile's
  thrufs run --hide secrets --show
          The policy, for `thrufs mount -o policy=FILE`
";

#[derive(Debug)]
pub(crate) struct RunArguments {
    pub(crate) tree: PathBuf,
    /// The program and its arguments; empty with `show`.
    pub(crate) command: Vec<OsString>,
    pub(crate) rules: RuleArguments,
    /// Print the policy instead.
    pub(crate) show: bool,
    /// An empty home directory, but for the tree and these.
    pub(crate) only: bool,
    pub(crate) also: Vec<PathBuf>,
    pub(crate) also_write: Vec<PathBuf>,
    /// The user of the command, by number or name.
    pub(crate) user: Option<String>,
    pub(crate) audit: Option<PathBuf>,
    pub(crate) report: bool,
    pub(crate) json: bool,
    pub(crate) settings: Vec<Setting>,
}

pub(crate) fn command(purpose: Purpose) -> Command {
    let command = Command::new("run")
        .about("Run a command in a sandbox, with the secrets of a directory hidden from it")
        .override_usage(
            "thrufs run [OPTIONS] [DIR] -- COMMAND [ARG]…\n       thrufs run [OPTIONS] --show [DIR]",
        )
        .after_help(EXAMPLES);
    let command = records(sandbox(rules(command)));
    command
        .arg(option_list(purpose, Use::Mount).help("Options of the mount, as for thrufs mount"))
        .arg(
            directory("DIR", "The directory to serve, at its own path")
                .required(false)
                .default_value("."),
        )
        .arg(
            Arg::new("COMMAND")
                .last(true)
                .num_args(1..)
                .required_unless_present("show")
                .value_parser(value_parser!(OsString))
                .value_hint(clap::ValueHint::CommandWithArguments)
                .help("The command and its arguments"),
        )
}

fn rules(command: Command) -> Command {
    command
        .next_help_heading(RULES)
        .arg(patterns("allow").help(
            "Exempt PATTERN from all other rules. What is beneath a directory is exempt only if \
             the directory exists or PATTERN ends in /**: a directory that the command moves there \
             shows its hidden files",
        ))
        .arg(patterns("read-only").help("Refuse changes of PATTERN and of everything beneath"))
        .arg(
            patterns("deny")
                .help("Refuse access to PATTERN and everything beneath; names stay visible"),
        )
        .arg(patterns("hide").help("Hide PATTERN and everything beneath: the name is absent"))
        .arg(
            patterns("redact").help(
                "Show photographs in PATTERN without their place, and refuse other files there",
            ),
        )
        .arg(
            path("policy")
                .long("policy")
                .value_name("FILE")
                .action(ArgAction::Append)
                .help("Add the rules of a policy, in TOML"),
        )
        .arg(profile_argument().action(ArgAction::Append).help(
            "Add the rules of a built-in profile: workspace hides secrets and keeps read-only what \
             the host executes, none has no rules [default: workspace]",
        ))
        .arg(
            Arg::new("show")
                .long("show")
                .action(ArgAction::SetTrue)
                .conflicts_with("COMMAND")
                .help("Print the policy instead of running a command"),
        )
}

fn patterns(name: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name("PATTERN")
        .action(ArgAction::Append)
        .value_hint(clap::ValueHint::AnyPath)
}

fn sandbox(command: Command) -> Command {
    let shown = |name, help| {
        path(name)
            .long(name)
            .value_name("PATH")
            .action(ArgAction::Append)
            .help(help)
    };
    command
        .next_help_heading(SANDBOX)
        .arg(
            Arg::new("only")
                .long("only")
                .action(ArgAction::SetTrue)
                .help("Empty the home directory, but for DIR"),
        )
        .arg(shown(
            "also",
            "Show PATH read-only, also where the sandbox is empty: in the home directory with --only, \
             in /tmp, /run and /dev",
        ))
        .arg(shown("also-write", "The same, writable"))
        .arg(
            Arg::new("user")
                .long("user")
                .value_name("USER")
                .value_hint(clap::ValueHint::Username)
                .help(
                    "As root: the user of the command, by number or name [default: the owner of DIR]",
                ),
        )
}

fn records(command: Command) -> Command {
    command
        .next_help_heading(RECORDS)
        .arg(
            path("audit")
                .long("audit")
                .value_name("FILE")
                .help("Append a record of each open in DIR, and of each refusal, to this file, outside of DIR"),
        )
        .arg(
            Arg::new("report")
                .long("report")
                .action(ArgAction::SetTrue)
                .help("Print at the end, to standard error, how many files were read and written, and what the \
                     rules refused"),
        )
        .arg(json("Print the report as JSON, on one line of standard error"))
        .next_help_heading(None)
}

pub(crate) fn arguments(matches: &mut ArgMatches) -> Result<RunArguments, OptionError> {
    let mut settings = Vec::new();
    for (_, list) in occurrences(matches, "options") {
        settings.extend(options::parse(text(list)?)?);
    }
    Ok(RunArguments {
        rules: RuleArguments {
            profiles: matches
                .remove_many("profile")
                .into_iter()
                .flatten()
                .collect(),
            policies: all(matches, "policy"),
            hide: texts(matches, "hide"),
            deny: texts(matches, "deny"),
            read_only: texts(matches, "read-only"),
            redact: texts(matches, "redact"),
            allow: texts(matches, "allow"),
        },
        command: matches
            .remove_many("COMMAND")
            .into_iter()
            .flatten()
            .collect(),
        tree: required(matches, "DIR"),
        show: matches.get_flag("show"),
        only: matches.get_flag("only"),
        also: all(matches, "also"),
        also_write: all(matches, "also-write"),
        user: matches.remove_one("user"),
        audit: matches.remove_one::<PathBuf>("audit"),
        report: matches.get_flag("report") || matches.get_flag("json"),
        json: matches.get_flag("json"),
        settings,
    })
}

fn texts(matches: &mut ArgMatches, name: &str) -> Vec<String> {
    matches.remove_many(name).into_iter().flatten().collect()
}

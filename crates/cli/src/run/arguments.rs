//! The command line of `thrufs run`.

use super::rules::RuleArguments;
use crate::arguments::{Purpose, occurrences, option_list, parsed, text};
use crate::draft::DraftPlace;
use crate::options::{self, OptionError, Setting, Use};
use clap::{ArgMatches, Command, CommandFactory, Parser, ValueHint};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const RULES: &str = "Rules, in the order in which they are evaluated";
const SANDBOX: &str = "The sandbox";
const SAVED: &str = "Saved options";
const RECORDS: &str = "Records";
const DRAFT: &str = "Drafts";

const USAGE: &str =
    "thrufs run [OPTIONS] [DIR] -- COMMAND [ARG]…\n       thrufs run [OPTIONS] --show [DIR]";

const EXAMPLES: &str = "\
Not walled off: the network without --no-network, environment variables, and, without --only, the
rest of the home directory; see thrufs-run(1).

PATTERN is relative to DIR: `secrets` at its top, `**/*.pem` at any depth. Quote it in a shell.
Of --allow, --deny and --hide, the first in this order that matches applies.

Examples:
  thrufs run -- npm install
          Without the secrets of the project in the working directory
  thrufs run --only --also ~/.cargo/bin ~/project -- cargo test
          The same, and without the home directory
  thrufs run --hide 'customers/**' --allow .env.test -- agent
          With rules of your own before the profile's
  thrufs run --draft -- agent
          DIR stays as it is, until `thrufs draft apply`
  thrufs run --hide secrets --show
          The policy, for `thrufs mount -o policy=FILE`
";

/// Run a command in a sandbox, with the secrets of a directory hidden from it
#[derive(Debug, Parser)]
#[command(name = "run", override_usage = USAGE, after_help = EXAMPLES)]
pub(crate) struct RunArguments {
    /// The directory to serve, at its own path [default: the git project of the working directory, or
    /// that itself]
    #[arg(id = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) tree: Option<PathBuf>,
    /// The command and its arguments
    #[arg(id = "COMMAND", last = true, required_unless_present_any = ["show", "save"])]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten, next_help_heading = RULES)]
    pub(crate) rules: RuleArguments,
    /// Print the policy instead of running a command
    #[arg(long, help_heading = RULES, conflicts_with = "COMMAND")]
    pub(crate) show: bool,
    /// Save these options for DIR, in ~/.config/thrufs/run.toml: later runs begin with them. Without
    /// COMMAND, only do that
    #[arg(long, help_heading = SAVED, conflicts_with = "show")]
    pub(crate) save: bool,
    /// Ignore the options that are saved for DIR
    #[arg(long, help_heading = SAVED)]
    pub(crate) no_saved: bool,
    /// Empty the home directory, but for DIR
    #[arg(long, help_heading = SANDBOX)]
    pub(crate) only: bool,
    /// Show PATH read-only, also where the sandbox is empty: in the home directory with --only, in
    /// /tmp, /run and /dev
    #[arg(long, value_name = "PATH", help_heading = SANDBOX)]
    pub(crate) also: Vec<PathBuf>,
    /// The same, writable
    #[arg(long, value_name = "PATH", help_heading = SANDBOX)]
    pub(crate) also_write: Vec<PathBuf>,
    /// No network but a loopback of its own, and no sockets of programs outside, but those that --also
    /// shows
    #[arg(long, help_heading = SANDBOX)]
    pub(crate) no_network: bool,
    /// As root: the user of the command, by number or name [default: the owner of DIR]
    #[arg(long, value_hint = ValueHint::Username, help_heading = SANDBOX)]
    pub(crate) user: Option<String>,
    /// Append a record of each open in DIR, and of each refusal, to this file, outside of DIR
    #[arg(long, value_name = "FILE", help_heading = RECORDS)]
    pub(crate) audit: Option<PathBuf>,
    /// Print at the end, to standard error, how many files were read and written, and what the rules
    /// refused
    #[arg(long, help_heading = RECORDS)]
    pub(crate) report: bool,
    /// Print the report as JSON, on one line of standard error, and what a draft changes on another
    #[arg(long, help_heading = RECORDS)]
    pub(crate) json: bool,
    /// Keep DIR as it is: what the command writes there goes to a draft, for thrufs draft. NAME goes on
    /// in that draft, or makes it [default: a new one, named after DIR]
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, help_heading = DRAFT)]
    pub(crate) draft: Option<Option<String>>,
    /// Write to DIR, also where --draft is saved
    #[arg(long, overrides_with = "draft", help_heading = DRAFT)]
    pub(crate) no_draft: bool,
    #[command(flatten, next_help_heading = DRAFT)]
    pub(crate) drafts: DraftPlace,
    #[arg(skip)]
    pub(crate) settings: Vec<Setting>,
}

pub(crate) fn command(purpose: Purpose) -> Command {
    let list = option_list(purpose, Use::Mount);
    let list = list.help("Options of the mount, as for thrufs mount");
    RunArguments::command().next_help_heading(None).arg(list)
}

/// What a command line of `thrufs run` that lacks `--` probably means.
pub(crate) fn without_separator(all: &[OsString]) -> Option<String> {
    let words: Vec<_> = all.iter().map(|word| word.to_string_lossy()).collect();
    let [_, run, words @ ..] = &words[..] else {
        return None;
    };
    if run != "run" || words.iter().any(|word| word == "--") {
        return None;
    }
    let is_tree = words.len() > 1 && Path::new(&*words[0]).is_dir();
    let (tree, command) = words.split_at(usize::from(is_tree));
    command.first().filter(|first| !first.starts_with('-'))?;
    let parts = [
        &["thrufs".into(), "run".into()],
        tree,
        &["--".into()],
        command,
    ];
    Some(parts.concat().join(" "))
}

pub(crate) fn arguments(matches: &mut ArgMatches) -> Result<RunArguments, OptionError> {
    let mut arguments: RunArguments = parsed(matches);
    for (_, list) in occurrences(matches, "options") {
        arguments.settings.extend(options::parse(text(list)?)?);
    }
    arguments.report |= arguments.json;
    Ok(arguments)
}

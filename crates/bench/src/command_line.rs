//! The command line of `thrufs-bench`: its options, and which process of a run this one is.

use crate::request::Request;
use crate::results::Results;
use crate::{ROLE, row, run, suites};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::borrow::Cow;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What was asked for.
#[derive(Debug)]
enum Asked {
    /// The rows and suites that there are; of these rows, if some are named.
    List(Option<String>),
    Run(Box<Request>),
}

/// What people type for this program. A run notes its command line so.
const NAME: [&str; 2] = ["thrufs", "bench"];

const MODES: [&str; 5] = ["dev", "ring", "dev+pt", "ring+pt", "none"];
const CACHES: [&str; 3] = ["never", "auto", "always"];

/// What a run that is repeated brings along.
const OF_A_RUN: [&str; 11] = [
    "against", "modes", "cache", "lower", "suite", "rows", "list", "jobs", "percent", "rounds",
    "time",
];

/// Does what the arguments of this process say.
pub(crate) fn main() -> ExitCode {
    // Inherited descriptors are not for servers and measurements.
    if let Err(errno) = thrufs_sys::process::close_range_on_exec(3, u32::MAX) {
        eprintln!("thrufs bench: cannot keep inherited descriptors from others: {errno}");
        return ExitCode::FAILURE;
    }
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|first| first == ROLE) {
        let words = arguments.drain(1..);
        let words: Vec<String> = words
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        return run::part(&words);
    }
    // Help and version come as errors, too.
    let asked = Asked::parse(&arguments).unwrap_or_else(|error| error.exit());
    carry_out(&asked).unwrap_or_else(|why| {
        eprintln!("thrufs bench: {why}");
        ExitCode::FAILURE
    })
}

fn command() -> Command {
    let suites = suites();
    let listed: String = suites
        .iter()
        .map(|(name, about)| format!("\n  {name:18} {about}"))
        .collect();
    let names: Vec<&'static str> = suites.into_iter().map(|(name, _)| name).collect();
    Command::new("thrufs-bench")
        .version(env!("CARGO_PKG_VERSION"))
        // As usages begin.
        .bin_name(NAME.join(" "))
        .no_binary_name(true)
        .about("Tell how fast a directory is through thrufs, against itself and against other mounts")
        .long_about(
            "Tell how fast a directory is through thrufs, against itself and against other mounts.\n\n\
             Makes files in a folder of its own in DIR, serves them in every mode that this machine \
             offers, and measures them all in turns, round after round. Prints a table, and writes a \
             report with everything that was measured. Ctrl-C ends it with what it has by then; however \
             it ends, nothing is left but the report.",
        )
        .args(target_arguments())
        .args(what())
        .args(how_long())
        .after_long_help(format!("Suites:{listed}"))
        .mut_arg("suite", |suite| {
            suite.value_parser(PossibleValuesParser::new(names))
        })
}

/// Which targets are measured.
fn target_arguments() -> [Arg; 5] {
    [
        Arg::new("DIR")
            .value_parser(value_parser!(PathBuf))
            .value_hint(clap::ValueHint::DirPath)
            .help("The directory in question [default: the working directory]"),
        Arg::new("against")
            .long("against")
            .value_name("NAME=MOUNTPOINT")
            .action(ArgAction::Append)
            .value_parser(against)
            .help("A mounted file system to compare with, and what to call it")
            .long_help(
                "A mounted file system to compare with, and what to call it. Where it shows the same tree \
                 as DIR, files are prepared beneath it; otherwise in it.",
            ),
        list("modes", "LIST", "How thrufs is to serve: dev, ring, dev+pt, ring+pt, or none [default: all]")
            .value_parser(PossibleValuesParser::new(MODES))
            .long_help(
                "How thrufs is to serve: over /dev/fuse (dev) or io_uring (ring), each without or with \
                 passthrough (+pt); none leaves it out. All modes unless given; what this machine does \
                 not offer is left out, and said.",
            ),
        list("cache", "LIST", "Values of the mount option cache, each for all modes [default: the default mount's]")
            .value_parser(PossibleValuesParser::new(CACHES)),
        list("lower", "LIST", "Make file systems for the run instead of using DIR: tmpfs, ext4 (root only)")
            .value_parser(PossibleValuesParser::new(["tmpfs", "ext4"])),
    ]
}

/// What is measured.
fn what() -> [Arg; 6] {
    [
        Arg::new("repeat")
            .long("repeat")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .value_hint(clap::ValueHint::FilePath)
            .conflicts_with_all(OF_A_RUN)
            .help("Repeat the run that has left this results.json, and tell what differs")
            .long_help(
                "Repeat the run that has left this results.json: its suite, rows, modes, caches, processes, rounds \
                 and amount of work, in its DIR unless another is given (a relative one is beneath the working \
                 directory). The end of the table tells how each ratio to native differs from then.",
            ),
        Arg::new("suite")
            .long("suite")
            .value_name("SUITE")
            .default_value("quick")
            .help("What is measured; --help has them all"),
        Arg::new("rows")
            .long("rows")
            .value_name("LIST")
            .help("Rows, or sets of them, instead of the suite's; see --list"),
        Arg::new("list")
            .long("list")
            .action(ArgAction::SetTrue)
            .help("Print the suites and rows there are; with --rows, all there is to say of those"),
        list(
            "jobs",
            "LIST",
            "How many processes measure at once, each number for all rows",
        )
        .value_parser(value_parser!(u32).range(1..=1024)),
        Arg::new("percent")
            .long("percent")
            .value_name("N")
            .value_parser(value_parser!(u32).range(1..=1000))
            .help("Work of a measurement, in hundredths of the usual [default: 100]"),
    ]
}

/// For how long, and where to.
fn how_long() -> [Arg; 3] {
    [
        Arg::new("rounds")
            .long("rounds")
            .value_name("N")
            .value_parser(value_parser!(u32).range(1..=1000))
            .help("Rounds [default: the suite's, or as many as there is time for]"),
        Arg::new("time")
            .long("time")
            .value_name("SECONDS")
            .value_parser(value_parser!(u32).range(1..=1_000_000))
            .help("How long it may take; where that is too little, rows are left out and said"),
        Arg::new("out")
            .long("out")
            .value_name("DIR")
            .value_parser(value_parser!(PathBuf))
            .value_hint(clap::ValueHint::DirPath)
            .help(
                "A new folder for the report [default: thrufs-bench-DATE in the working directory]",
            ),
    ]
}

fn list(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .value_name(value)
        .value_delimiter(',')
        .action(ArgAction::Append)
        .help(help)
}

fn against(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, point)) if !name.is_empty() && !point.is_empty() => {
            Ok((name.to_owned(), PathBuf::from(point)))
        }
        _ => Err("a name and a mount point: NAME=MOUNTPOINT".to_owned()),
    }
}

impl Asked {
    /// What the words after the program's name ask for.
    ///
    /// # Errors
    ///
    /// Clap's, which know how to print themselves.
    fn parse(words: &[OsString]) -> Result<Asked, clap::Error> {
        let mut matches = command().try_get_matches_from(words)?;
        if matches.get_flag("list") {
            return Ok(Asked::List(matches.remove_one("rows")));
        }
        fn all<T: Clone + Send + Sync + 'static>(matches: &mut ArgMatches, name: &str) -> Vec<T> {
            matches.remove_many(name).into_iter().flatten().collect()
        }
        let directory: Option<PathBuf> = matches.remove_one("DIR");
        let shown = words.iter().map(|word| word.to_string_lossy());
        let name = NAME.into_iter().map(Into::into);
        Ok(Asked::Run(Box::new(Request {
            directory_given: directory.is_some(),
            directory: directory.unwrap_or_else(|| PathBuf::from(".")),
            against: all(&mut matches, "against"),
            modes: all(&mut matches, "modes"),
            cache: all(&mut matches, "cache"),
            suite: matches.remove_one("suite").unwrap_or_default(),
            rows: matches.remove_one("rows"),
            jobs: all(&mut matches, "jobs"),
            rounds: matches.remove_one("rounds"),
            seconds: matches.remove_one("time"),
            percent: matches.remove_one("percent"),
            lowers: all(&mut matches, "lower"),
            out: matches.remove_one("out"),
            repeats: matches.remove_one("repeat"),
            command: name.chain(shown).map(Cow::into_owned).collect(),
        })))
    }
}

/// Does it.
///
/// # Errors
///
/// What makes no sense on this machine, in words.
fn carry_out(asked: &Asked) -> Result<ExitCode, String> {
    match asked {
        Asked::List(rows) => {
            let mut text = String::new();
            if rows.is_none() {
                text.push_str("Suites:\n");
                for (name, about) in suites() {
                    text.push_str(&format!("  {name:18} {about}\n"));
                }
                text.push_str("\nRows, and sets of them:\n");
            }
            text.push_str(&row::list::text(rows.as_deref())?);
            // A reader that has enough (`| head`) is no failure.
            let _ = std::io::stdout().write_all(text.as_bytes());
            Ok(ExitCode::SUCCESS)
        }
        Asked::Run(request) => match &request.repeats {
            Some(file) => run::request(&again(request, file)?),
            None => run::request(request),
        },
    }
}

/// The request of the run that has left these results, changed as `asked` says.
fn again(asked: &Request, file: &Path) -> Result<Request, String> {
    let then = Results::read(file).map_err(|error| error.to_string())?;
    match parse_noted(&then.command) {
        Some(Asked::Run(before)) => Ok(before.again(&then, asked)),
        _ => Err(format!(
            "{}: it cannot be repeated by this program, as it was started by: {}",
            file.display(),
            then.command.join(" ")
        )),
    }
}

/// What a command line asks for that a run has noted.
fn parse_noted(command: &[String]) -> Option<Asked> {
    let words = command.strip_prefix(&NAME.map(String::from))?;
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    Asked::parse(&words).ok()
}

#[cfg(test)]
mod tests {
    use super::{Asked, command, parse_noted};
    use crate::request::Request;
    use crate::results::Results;

    fn parsed(words: &[&str]) -> Request {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        match parse_noted(&words) {
            Some(Asked::Run(request)) => *request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn clap_finds_no_fault() {
        command().debug_assert();
    }

    /// Results without a figure.
    fn nothing() -> Results {
        let text = r#"{"format": 1, "suite": "", "command": [], "started": 0, "seconds": 0, "ending": "complete",
            "machine": {"kernel": "", "processor": "", "processors": 1, "memory_bytes": 0, "load_before": 0,
            "hypervisor": null, "versions": {}}, "contestants": [], "rows": [], "cells": [], "remarks": []}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_repetition_has_the_options_of_its_run() {
        let words = [
            "thrufs",
            "bench",
            "--suite",
            "full",
            "--against",
            "a=/b",
            "--modes",
            "dev,ring+pt",
            "--cache",
            "never,auto",
            "--rows",
            "mkdir,quick",
            "--jobs",
            "1,4",
            "--rounds",
            "7",
            "--time",
            "90",
            "--percent",
            "50",
            "--out",
            "/out",
            "/where",
        ];
        let before = parsed(&words);
        let asked = parsed(&["thrufs", "bench", "--repeat", "f.json"]);
        let again = before.clone().again(&nothing(), &asked);
        let words: Vec<&str> = again.command.iter().map(String::as_str).collect();
        let said = parsed(&words);
        let without = |request: Request| Request {
            out: None,
            repeats: None,
            command: Vec::new(),
            ..request
        };
        assert_eq!(without(said), without(before));
    }

    #[test]
    fn repeat_conflicts_with_options_of_a_run() {
        let words = ["--repeat", "f.json", "--rows", "mkdir"];
        assert!(Asked::parse(&words.map(Into::into)).is_err());
    }
}

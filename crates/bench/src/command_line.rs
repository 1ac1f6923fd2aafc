//! The command line of `thrufs-bench`.

use crate::outcome::Outcome;
use crate::plan::{self, Plan};
use crate::results::Results;
use crate::target::Setup;
use crate::{isolation, row};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// What people type for this program.
const NAME: [&str; 2] = ["thrufs", "bench"];
const ABOUT: &str =
    "Tell how fast a directory is through thrufs, against itself and against other mounts";
const LONG: &str = "Tell how fast a directory is through thrufs, against itself and against other mounts.\n\n\
    Makes files in a folder of its own in DIR, serves them in every mode that this machine offers, and measures them \
    all in turns, round after round, for two minutes, or as long as three rounds take. Prints a table, and writes a \
    report of everything. Ctrl-C ends it with what it has by then; however it ends, nothing is left but the report.";
const MODES: [&str; 6] = ["dev", "ring", "opens", "dev+pt", "ring+pt", "none"];
const CACHES: [&str; 3] = ["never", "auto", "always"];

/// Does what the arguments say.
pub(crate) fn carry_out(words: &[OsString]) -> Outcome<ExitCode> {
    // Inherited descriptors are not for servers and measurements.
    thrufs_sys::process::close_range_on_exec(3, u32::MAX)
        .map_err(|errno| format!("cannot keep inherited descriptors from others: {errno}"))?;
    // Help and version come as errors, too.
    let matches = command().try_get_matches_from(words);
    let mut matches = matches.unwrap_or_else(|error| error.exit());
    if matches.get_flag("list") {
        let rows: Option<String> = matches.remove_one("rows");
        let text = row::list::text(rows.as_deref())?;
        // A reader that has enough (`| head`) is no failure.
        let _ = std::io::stdout().write_all(text.as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    isolation::front::run(&plan(matches, words)?)
}

fn command() -> Command {
    let number = || value_parser!(u32).range(1..=1_000_000);
    let path = || value_parser!(PathBuf);
    Command::new("thrufs-bench")
        .version(env!("CARGO_PKG_VERSION"))
        // As usages begin.
        .bin_name(NAME.join(" "))
        .no_binary_name(true)
        .about(ABOUT)
        .long_about(LONG)
        .args([
            Arg::new("DIR")
                .value_parser(path())
                .value_hint(ValueHint::DirPath)
                .default_value(".")
                .help("The directory in question"),
            option("against", "NAME=MOUNTPOINT", "A mounted file system to compare with, and what to call it")
                .action(ArgAction::Append)
                .value_parser(against),
            list("modes", "How thrufs is to serve: over /dev/fuse (dev) or io_uring (ring), with passthrough (+pt) or without, or without passthrough and so that the kernel opens files by itself (opens); or none. thrufs mount itself chooses the last that there is [default: all]")
                .value_parser(PossibleValuesParser::new(MODES)),
            list("cache", "Values of the mount option cache, each for all modes [default: the default mount's]")
                .value_parser(PossibleValuesParser::new(CACHES)),
            option("rows", "LIST", "Rows, or sets of them (quick, full); see --list [default: quick]"),
            Arg::new("list")
                .long("list")
                .action(ArgAction::SetTrue)
                .help("Print the rows and sets there are; with --rows, what these measure"),
            list("jobs", "How many processes measure at once, each number for all rows [default: 1, in some rows 2 too]")
                .value_parser(value_parser!(u32).range(1..=1024)),
            option("percent", "N", "Files and bytes, in percent of 8,000 and 256 MiB [default: 50, or less where DIR is slow]")
                .value_parser(value_parser!(u32).range(1..=1000)),
            option("rounds", "N", "Rounds [default: 3 to 11, as many as there is time for]")
                .value_parser(number()),
            option("time", "SECONDS", "How long to begin rounds; three are made however long they take [default: 120]")
                .value_parser(number()),
            option("compare", "FILE", "Say what differs from an earlier run, of which this is the results.json")
                .value_parser(path()),
            option("out", "DIR", "A new folder for report.txt and results.json [default: thrufs-bench-DATE in the working directory]")
                .value_parser(path()),
        ])
}

fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn list(name: &'static str, help: &'static str) -> Arg {
    let one = option(name, "LIST", help).value_delimiter(',');
    one.action(ArgAction::Append)
}

fn against(text: &str) -> Result<Setup, String> {
    let (name, point) = text.split_once('=').unwrap_or_default();
    let good = |c: char| c.is_ascii_alphanumeric() || "-_+.:".contains(c);
    if name.is_empty() || point.is_empty() || name.starts_with('.') || !name.chars().all(good) {
        return Err(
            "a name (of letters, digits and -_+:) and a mount point: NAME=MOUNTPOINT".into(),
        );
    }
    let (name, point) = (name.to_owned(), PathBuf::from(point));
    Ok(Setup::Against { name, point })
}

fn plan(mut matches: ArgMatches, words: &[OsString]) -> Outcome<Plan> {
    fn all<T: Clone + Send + Sync + 'static>(matches: &mut ArgMatches, name: &str) -> Vec<T> {
        matches.remove_many(name).into_iter().flatten().collect()
    }
    let mut setups = vec![Setup::Native];
    setups.extend(Setup::thrufs(
        &all(&mut matches, "modes"),
        &all(&mut matches, "cache"),
    ));
    setups.extend(all(&mut matches, "against"));
    let rows: Option<String> = matches.remove_one("rows");
    let rows = row::list::listed(rows.as_deref().unwrap_or("quick"))?;
    let words = words.iter().map(|word| word.to_string_lossy().into_owned());
    let plan = Plan {
        command: NAME.map(str::to_owned).into_iter().chain(words).collect(),
        directory: matches.remove_one("DIR").unwrap_or_default(),
        scratch: plan::scratch_name()?,
        rows: rows.iter().map(|row| row.name.to_owned()).collect(),
        jobs: all(&mut matches, "jobs"),
        percent: matches.remove_one("percent"),
        rounds: matches.remove_one("rounds"),
        seconds: matches.remove_one("time").unwrap_or(120),
        setups,
        out: plan::out(matches.remove_one("out"))?,
        compare: matches.remove_one("compare"),
    };
    // Before anything is measured that cannot be compared.
    plan.compare.as_deref().map(Results::read).transpose()?;
    plan.checked()
}

#[cfg(test)]
mod tests {
    use super::{against, command};

    #[test]
    fn clap_finds_no_fault_and_names_are_names() {
        command().debug_assert();
        assert!(against("a=/b").is_ok());
        for wrong in ["a", "=/b", "a=", ".a=/b", "a/b=/c"] {
            assert!(against(wrong).is_err(), "{wrong}");
        }
    }
}

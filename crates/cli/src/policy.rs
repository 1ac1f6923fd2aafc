//! `thrufs policy check`: what a policy decides for files, and by which rule.

mod answer;
mod host_file;

use crate::arguments::{all, path, required};
use crate::error::SetUpError;
use crate::options;
use crate::output::print;
use crate::run::rules::{self, Profile};
use crate::source;
use clap::{Arg, ArgMatches, Command};
use host_file::{HostFile, SubjectError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thrufs_policy::{Caller, Policy};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    uid: u32,
    gid: u32,
}

#[derive(Debug)]
enum PolicySource {
    File(PathBuf),
    Profile(Profile),
}

#[derive(Debug)]
struct CheckArguments {
    policy: PolicySource,
    paths: Vec<PathBuf>,
    root: PathBuf,
    identity: Option<Identity>,
    executable: Option<PathBuf>,
}

pub(crate) fn command() -> Command {
    let check = Command::new("check")
        .about("Check a policy, and show what it decides for files")
        .override_usage(
            "thrufs policy check [OPTIONS] FILE [PATH]…\n       thrufs policy check [OPTIONS] \
             --profile NAME [PATH]…",
        )
        .arg(
            path("FILE")
                .required_unless_present("profile")
                .help("The policy, in TOML"),
        )
        .arg(
            path("PATH")
                .num_args(0..)
                .help("Files of the host: show the decision for each, and its rule"),
        )
        .arg(rules::profile_argument().help("A profile of thrufs run, instead of FILE"))
        .arg(
            path("root")
                .long("root")
                .value_name("DIR")
                .value_hint(clap::ValueHint::DirPath)
                .default_value(".")
                .help("The served directory, from which the policy's paths are counted"),
        )
        .arg(
            Arg::new("as")
                .long("as")
                .value_name("UID[:GID]")
                .value_parser(Identity::parse)
                .help(
                    "User and group that open them, by number or name [default: the user of the \
                       command]",
                ),
        )
        .arg(
            path("exe")
                .long("exe")
                .value_name("PROGRAM")
                .help("The path of the program that opens them [default: unknown]"),
        );
    Command::new("policy")
        .about("Check a policy")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(check)
}

fn arguments(matches: &mut ArgMatches) -> CheckArguments {
    let (_, mut matches) = matches
        .remove_subcommand()
        .expect("clap requires a subcommand, and there is one");
    let file: Option<PathBuf> = matches.remove_one("FILE");
    let mut paths = all(&mut matches, "PATH");
    let policy = match matches.remove_one("profile") {
        // What clap took for FILE is the first PATH.
        Some(profile) => {
            paths.splice(0..0, file);
            PolicySource::Profile(profile)
        }
        None => PolicySource::File(file.expect("clap requires it or a profile")),
    };
    CheckArguments {
        policy,
        paths,
        root: required(&mut matches, "root"),
        identity: matches.remove_one("as"),
        executable: matches.remove_one("exe"),
    }
}

/// Prints the decision for each path; without paths, checks the policy. Fails if a path cannot be
/// checked.
pub(crate) fn check(matches: &mut ArgMatches) -> Result<ExitCode, SetUpError> {
    let arguments = &arguments(matches);
    let (name, policy) = match &arguments.policy {
        PolicySource::File(file) => (file.as_path(), Policy::load(file)?),
        PolicySource::Profile(Profile { name, text }) => {
            let name = Path::new(name);
            (name, Policy::of_file(name, text.as_bytes())?)
        }
    };
    if arguments.paths.is_empty() {
        let count = policy.rules().len();
        let rules = if count == 1 { "rule" } else { "rules" };
        print(format!("{}: {count} {rules}, no fault\n", name.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let root = source::resolve(&arguments.root)?;
    if policy.uses().executables && arguments.executable.is_none() {
        eprintln!(
            "thrufs: rules match on the caller's program, which is unknown: set it with --exe"
        );
    }
    let mut code = ExitCode::SUCCESS;
    for path in &arguments.paths {
        match answer(&policy, arguments, &root, path) {
            Ok(line) => print(line),
            Err(error) => {
                eprintln!("thrufs: {error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

fn answer(
    policy: &Policy,
    arguments: &CheckArguments,
    root: &Path,
    path: &Path,
) -> Result<Vec<u8>, SubjectError> {
    let host_file = HostFile::find(root, path)?;
    let identity = arguments.identity.unwrap_or_else(Identity::of_this_process);
    let executable = || {
        let executable = arguments.executable.as_ref()?;
        Some(executable.as_os_str().as_encoded_bytes().to_vec())
    };
    let caller = Caller {
        uid: identity.uid,
        gid: identity.gid,
        executable: &executable,
    };
    let mut line = path.as_os_str().as_encoded_bytes().to_vec();
    line.extend(answer::of(policy, &host_file, &caller)?.bytes());
    line.push(b'\n');
    Ok(line)
}

impl Identity {
    /// `UID[:GID]`, numbers or names; the default group is the user's.
    fn parse(text: &str) -> Result<Identity, String> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let uid = options::parse_user(user)?;
        let gid = match group {
            Some(group) => options::parse_group(group)?,
            None => group_of(uid)
                .ok_or("this user has no group in /etc/passwd: add one after a colon")?,
        };
        Ok(Identity { uid, gid })
    }

    fn of_this_process() -> Identity {
        Identity {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }
}

/// From `/etc/passwd`.
fn group_of(uid: u32) -> Option<u32> {
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    passwd.lines().find_map(|line| {
        let mut numbers = line.split(':').skip(2).map(str::parse);
        let (found, group) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        (found == uid).then_some(group)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities() {
        let parsed = |text| Identity::parse(text).ok().map(|it| (it.uid, it.gid));
        assert_eq!(parsed("0"), Some((0, 0)));
        assert_eq!(parsed("root:7"), Some((0, 7)));
        assert_eq!(parsed("4000000000:root"), Some((4_000_000_000, 0)));
        for text in [
            "",
            ":",
            "0:",
            ":0",
            "4000000000",
            "nobody-of-that-name",
            "0:0:0",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}

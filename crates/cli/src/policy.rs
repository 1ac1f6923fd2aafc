//! `thrufs policy check`: what a policy decides for files, and by which rule.

mod answer;
pub(crate) mod host_file;

use crate::error::StartupError;
use crate::options;
use crate::output::{print, report};
use crate::policy_file;
use crate::run::rules::Profile;
use crate::run::user::Account;
use crate::source;
use clap::{Args, Parser, ValueHint};
use host_file::{HostFile, Root, SubjectError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thrufs_policy::{Caller, Policy};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    uid: u32,
    gid: u32,
}

/// Check a policy
#[derive(Parser)]
#[command(name = "policy", disable_help_subcommand = true)]
pub(crate) enum PolicyCommand {
    Check(CheckArguments),
}

const USAGE: &str = "thrufs policy check [OPTIONS] FILE [PATH]…\n       thrufs policy check [OPTIONS] \
                     --profile NAME [PATH]…";

/// Check a policy, and show what it decides for files
#[derive(Args)]
#[command(override_usage = USAGE)]
pub(crate) struct CheckArguments {
    /// The policy, in TOML
    #[arg(id = "FILE", required_unless_present = "profile")]
    file: Option<PathBuf>,
    /// Files of the host: show the decision for each, and its rule
    #[arg(id = "PATH")]
    paths: Vec<PathBuf>,
    /// A profile of thrufs run, instead of FILE
    #[arg(long, value_name = "NAME")]
    profile: Option<Profile>,
    /// The served directory, from which the policy's paths are counted
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, default_value = ".")]
    root: PathBuf,
    /// User and group that open them, by number or name [default: the user of the command]
    #[arg(long = "as", value_name = "UID[:GID]", value_parser = Identity::parse)]
    identity: Option<Identity>,
    /// The path of the program that opens them [default: unknown]
    #[arg(long, value_name = "PROGRAM")]
    exe: Option<PathBuf>,
}

/// Prints the decision for each path; without paths, checks the policy. Fails if a path cannot be
/// checked.
pub(crate) fn check(command: PolicyCommand) -> Result<ExitCode, StartupError> {
    let PolicyCommand::Check(arguments) = command;
    let CheckArguments {
        file, mut paths, ..
    } = arguments;
    let (name, policy) = match arguments.profile {
        Some(Profile { name, text }) => {
            // What clap took for FILE is the first PATH.
            paths.splice(0..0, file);
            let name = PathBuf::from(name);
            let policy = Policy::of_file(&name, text.as_bytes())?;
            (name, policy)
        }
        None => {
            let file = file.expect("clap requires it or a profile");
            let policy = Policy::of_file(&file, &policy_file::text_of(&file)?)?;
            (file, policy)
        }
    };
    if paths.is_empty() {
        let count = policy.rules().len();
        let rules = if count == 1 { "rule" } else { "rules" };
        print(format!("{}: {count} {rules}, no fault\n", name.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let root = Root::open(&arguments.root).map_err(source::unusable(&arguments.root))?;
    let executable = arguments.exe;
    let identity = arguments.identity;
    let identity = identity.unwrap_or_else(Identity::of_this_process);
    let caller = Caller {
        uid: identity.uid,
        gid: identity.gid,
        executable: &|| Some(executable.as_ref()?.as_os_str().as_encoded_bytes().to_vec()),
    };
    if policy.uses().executables && executable.is_none() {
        report(format_args!(
            "thrufs: rules match on the caller's program, which is unknown: set it with --exe"
        ));
    }
    let mut code = ExitCode::SUCCESS;
    for path in &paths {
        match answer(&policy, &caller, &root, path) {
            Ok(line) => print(String::from_utf8_lossy(&line)),
            Err(error) => {
                report(format_args!("thrufs: {error}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

fn answer(
    policy: &Policy,
    caller: &Caller<'_>,
    root: &Root,
    path: &Path,
) -> Result<Vec<u8>, SubjectError> {
    let host_file = HostFile::find(root, path)?;
    let mut line = path.as_os_str().as_encoded_bytes().to_vec();
    line.extend(answer::of(policy, &host_file, caller).bytes());
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
            None => {
                let account = Account::of(uid);
                let missing = "this user has no group in /etc/passwd: add one after a colon";
                account.ok_or(missing)?.gid
            }
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

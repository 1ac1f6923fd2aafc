//! `thrufs policy check`: what a policy decides for files, and by which rule.

mod answer;
mod host_file;

use crate::error::CommandError;
use crate::options;
use crate::output::print;
use crate::run::rules::Profile;
use host_file::HostFile;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thrufs_hostdir::policy::{Caller, Policy};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

#[derive(Debug)]
pub(crate) enum PolicySource {
    File(PathBuf),
    Profile(Profile),
}

#[derive(Debug)]
pub(crate) struct CheckArguments {
    pub(crate) policy: PolicySource,
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) root: PathBuf,
    pub(crate) identity: Option<Identity>,
    pub(crate) executable: Option<PathBuf>,
}

/// Prints the decision for each path; without paths, checks the policy. Fails if a path cannot be
/// checked.
pub(crate) fn check(arguments: &CheckArguments) -> Result<ExitCode, CommandError> {
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
    let root = std::fs::canonicalize(&arguments.root).map_err(|source| CommandError::Source {
        path: arguments.root.clone(),
        source,
    })?;
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
) -> Result<Vec<u8>, CommandError> {
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
    pub(crate) fn parse(text: &str) -> Result<Identity, String> {
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

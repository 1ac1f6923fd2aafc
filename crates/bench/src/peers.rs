//! Other servers: scripts in `bench/peers` install and start each in the same way, for us and by hand.

use crate::Outcome;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Those that show a directory at a mount point, with a title for people. virtiofsd and 9p are measured
/// in guests.
pub(crate) const PEERS: [(&str, &str); 6] = [
    ("passthrough", "libfuse's passthrough (high-level)"),
    ("passthrough_ll", "libfuse's passthrough_ll (low-level)"),
    ("passthrough_hp", "libfuse's passthrough_hp"),
    ("bindfs", "bindfs"),
    ("mergerfs", "mergerfs, one branch"),
    ("go-fuse", "go-fuse's loopback"),
];

/// The names of a list, parted by commas; `all` is all of them.
///
/// # Errors
/// As a text that lists them, for a name that is none.
pub(crate) fn listed(list: &str) -> Outcome<Vec<&'static str>> {
    let known = || PEERS.iter().map(|(name, _)| *name);
    if list == "all" {
        return Ok(known().collect());
    }
    let one = |name: &str| {
        let found = known().find(|known| *known == name);
        found.ok_or_else(|| {
            let names: Vec<_> = known().collect();
            format!("there is no peer {name}; there are: {}", names.join(" "))
        })
    };
    list.split(',').map(one).collect()
}

/// What it is, for people.
pub(crate) fn title(name: &str) -> &str {
    let found = PEERS.iter().find(|(known, _)| *known == name);
    found.map_or(name, |(_, title)| title)
}

/// Its version, if it is installed.
pub(crate) fn version(name: &str) -> Option<String> {
    let script = script(name).ok()?;
    run(Command::new(script).arg("version").stderr(Stdio::null())).ok()
}

/// Installs it if it is not there, which may take minutes.
///
/// # Errors
/// As a text: no sources of the project at hand, no root, no archive, a build that failed.
pub(crate) fn install(name: &str) -> Outcome<()> {
    let mut install = Command::new(script(name)?);
    // What it does, and which version it finds, is for people.
    run(install.arg("install").stderr(Stdio::inherit())).map(drop)
}

/// A command that becomes the server, in the foreground, when the directory and the mount point are added,
/// and options after them.
///
/// # Errors
/// As a text: no sources of the project at hand.
pub(crate) fn start(name: &str) -> Outcome<Command> {
    let mut command = Command::new(script(name)?);
    command.arg("start");
    Ok(command)
}

/// libfuse's `passthrough_hp`, installed if it is not there.
pub(crate) fn passthrough_hp() -> Outcome<PathBuf> {
    install("passthrough_hp")?;
    let program = run(Command::new(script("passthrough_hp")?).arg("where"))?;
    Ok(PathBuf::from(program))
}

fn script(name: &str) -> Outcome<PathBuf> {
    let project = std::env::var_os("PROJECT").ok_or_else(|| {
        format!(
            "{name} is started by the project's sources (bench/peers), which are not at hand: start it by hand and \
             name its mount with --against"
        )
    })?;
    Ok(Path::new(&project).join("bench/peers").join(name))
}

/// Its standard output.
fn run(command: &mut Command) -> Outcome<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(format!("{command:?}: {}", output.status))
    }
}

#[cfg(test)]
mod tests {
    use super::{PEERS, listed};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    #[test]
    fn every_peer_has_its_script() {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/peers");
        for (name, _) in PEERS {
            let script = std::fs::metadata(scripts.join(name)).unwrap();
            assert_eq!(script.permissions().mode() & 0o111, 0o111, "{name}");
        }
    }

    #[test]
    fn lists_name_peers_that_there_are() {
        assert_eq!(
            listed("bindfs,passthrough"),
            Ok(vec!["bindfs", "passthrough"])
        );
        assert_eq!(listed("all").map(|all| all.len()), Ok(PEERS.len()));
        assert!(listed("bindfs,none").is_err_and(|why| why.contains("mergerfs")));
    }
}

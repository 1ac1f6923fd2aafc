//! Whether this user can run a command in a sandbox (`thrufs run`): tried, in a directory that is removed.

use super::finding::Finding;
use crate::run;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::process::{Command, Stdio};

const NAME: &str = "thrufs run";

pub(super) fn look(has_device: bool) -> Finding {
    if !has_device {
        return Finding::bad("not available without /dev/fuse", "see /dev/fuse").called(NAME);
    }
    let finding = match attempt() {
        Ok(()) if run::restrictions::can_scope() => {
            Finding::good("a command can run in a sandbox, in a tree under a policy")
        }
        Ok(()) => Finding::note(
            "a command can run in a sandbox, but reaches abstract Unix sockets, and its process group \
             by signals: Linux 6.12 with Landlock has scopes",
        ),
        Err(problem) => match problem.rsplit_once("; ") {
            Some((problem, remedy)) => Finding::bad(problem, remedy),
            None => Finding::bad(problem, "see REQUIREMENTS in thrufs-run(1)"),
        },
    };
    finding.called(NAME)
}

fn attempt() -> Result<(), String> {
    // Of random names, nobody has made all in /tmp.
    let random = RandomState::new().hash_one(std::process::id());
    let name = format!("thrufs-doctor-{random:016x}");
    let tree = std::env::temp_dir().join(name);
    fs::create_dir(&tree).map_err(|error| format!("cannot create {}: {error}", tree.display()))?;
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["run", "--profile", "none"])
        .arg(&tree)
        .args(["--", "true"]);
    let output = command.stdin(Stdio::null()).output();
    let _ = fs::remove_dir(&tree);
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().lines().last().unwrap_or("it failed");
    Err(said.trim_start_matches("thrufs: ").to_owned())
}
